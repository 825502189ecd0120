"""The model in a GGUF file: its config, and its tensors as exact float32 in Hugging Face names.

llama.cpp rotates neighbouring pairs of a head's dimensions where Hugging Face rotates halves, so
its converter reorders the rows of q and k; `unpermute` undoes that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from minicache.model_config import Architecture, ModelConfig, ModelError, tensor_shapes
from minicache.models.gguf_file import GgufFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    NamedArray = tuple[str, NDArray[np.float32]]

_TYPES = ("F32", "F16", "Q8_0", "Q4_1")
_LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_PARTS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_ELSEWHERE = "use the model's safetensors release"


def gguf_config(file: GgufFile, name: str) -> ModelConfig:
    """The config that the metadata describe. Raises `ModelError` for what is not supported."""
    _refuse_unsupported(file)
    fields = file.fields
    heads = fields.integer("llama.attention.head_count")
    hidden = fields.integer("llama.embedding_length")
    config = ModelConfig(
        name=name,
        architecture=Architecture.LLAMA,
        num_layers=fields.integer("llama.block_count"),
        hidden_size=hidden,
        intermediate_size=fields.integer("llama.feed_forward_length"),
        num_heads=heads,
        num_kv_heads=fields.integer("llama.attention.head_count_kv", heads),
        head_dim=fields.integer("llama.attention.key_length", max(hidden // heads, 1)),
        vocab_size=len(fields.strings("tokenizer.ggml.tokens")),
        max_position_embeddings=fields.integer("llama.context_length"),
        rms_norm_eps=_shortest(fields.number("llama.attention.layer_norm_rms_epsilon")),
        rope_theta=_shortest(fields.number("llama.rope.freq_base", 10_000.0)),
        tie_word_embeddings="output.weight" not in file.tensors,
        eos_token_ids=fields.token_ids("tokenizer.ggml.eos_token_id"),
    )
    if fields.integer("llama.rope.dimension_count", config.head_dim) != config.head_dim:
        fields.refuse("llama.rope.dimension_count", f"only all {config.head_dim} of a head are")
    return config


def gguf_tensors(file: GgufFile, config: ModelConfig) -> Iterator[NamedArray]:
    """Each tensor of the model, dequantized: `(name, float32 array)`, in the model's order.

    Raises `ModelError` for a missing, unexpected or wrongly shaped tensor or an unknown
    quantization, the first three before the first tensor is made.
    """
    names = {_hugging_face_name(file, name): name for name in file.tensors}
    expected = tensor_shapes(config)
    _check_shapes(file, names, expected)
    for name in expected:
        yield name, _row_order(name, _dequantize(file, names[name]), config)


def unpermute(rows: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Rows of q or k, `(heads · head_dim, hidden)`: from neighbouring pairs back to two halves."""
    pairs = rows.reshape(num_heads, -1, 2, rows.shape[-1])  # (heads, head_dim / 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _refuse_unsupported(file: GgufFile) -> None:
    fields = file.fields
    if fields.string("general.architecture") != "llama":
        fields.refuse("general.architecture", f"only 'llama' is read from GGUF; {_ELSEWHERE}")
    if fields.string("llama.rope.scaling.type", "none") != "none":
        fields.refuse("llama.rope.scaling.type", f"only 'none' is read from GGUF; {_ELSEWHERE}")
    if fields.integer("llama.expert_count", 0, least=0):
        fields.refuse("llama.expert_count", "only dense models are")
    if "rope_freqs.weight" in file.tensors:
        raise ModelError(
            f"{file.path} stretches its rotary frequencies (tensor rope_freqs.weight), which is not"
            f" read from GGUF; {_ELSEWHERE}."
        )


def _check_shapes(
    file: GgufFile, names: dict[str, str], expected: dict[str, tuple[int, ...]]
) -> None:
    for name in sorted(names.keys() ^ expected.keys()):
        verb = "has an unexpected" if name in names else "lacks the"
        raise ModelError(
            f"{file.path} {verb} tensor {names.get(name, name)}; its metadata are of another model."
        )
    for name, shape in expected.items():
        found = tuple(int(size) for size in reversed(file.tensors[names[name]].shape))
        if found != shape:
            raise ModelError(
                f"{file.path} has {names[name]} of shape {found}, but its metadata ask for {shape};"
                " fetch it again."
            )


def _row_order(name: str, values: NDArray[np.float32], config: ModelConfig) -> NDArray[np.float32]:
    if name.endswith("q_proj.weight"):
        return unpermute(values, config.num_heads)
    if name.endswith("k_proj.weight"):
        return unpermute(values, config.num_kv_heads)
    return values


def _dequantize(file: GgufFile, name: str) -> NDArray[np.float32]:
    """float32 keeps scale · quant + offset as the reference computes it; 16 bits would round it."""
    import numpy as np
    from gguf import dequantize

    tensor = file.tensors[name]
    if tensor.tensor_type.name not in _TYPES:
        raise ModelError(
            f"{file.path} stores {name} as {tensor.tensor_type.name}, but only {', '.join(_TYPES)}"
            f" are read; {_ELSEWHERE}."
        )
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)


def _hugging_face_name(file: GgufFile, name: str) -> str:
    if name in _TOP_PARTS:
        return _TOP_PARTS[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in _LAYER_PARTS:
        raise ModelError(f"{file.path} has a tensor {name}, which a Llama does not have.")
    return f"model.layers.{match[1]}.{_LAYER_PARTS[match[2]]}.weight"


def _shortest(value: float) -> float:
    """The shortest decimal that rounds to the stored float32: 1e-05, not 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value)))
