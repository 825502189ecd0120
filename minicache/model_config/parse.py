"""config.json → ModelConfig, refusing by name whatever the decoder would compute wrongly.

Older files write `rope_theta`, `rope_scaling` and `torch_dtype`; transformers 5 writes
`rope_parameters` and `dtype`. Both are read. Defaults are those of transformers' config classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minicache.model_config.config import Architecture, ModelConfig, ModelError, RopeScaling
from minicache.model_config.fields import Fields

_CAUSAL_LM = {
    Architecture.LLAMA: "LlamaForCausalLM",
    Architecture.QWEN2: "Qwen2ForCausalLM",
    Architecture.QWEN3: "Qwen3ForCausalLM",
}
_DEFAULT_ROPE_THETA = 10_000.0
_SUPPORTED = "minicache runs dense models of the Llama, Qwen2 and Qwen3 architecture"


def read_config(folder: Path, name: str | None = None) -> ModelConfig:
    """The config of a model folder; end-of-sequence tokens come from generation_config.json first.

    Raises `ModelError` when config.json is absent, malformed, or asks for what is not supported.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} has no config.json, so it is not a model folder; name the folder that holds"
            " config.json, tokenizer.json and the .safetensors files."
        )
    generation = folder / "generation_config.json"
    return parse_config(
        read_json(folder / "config.json"),
        name or folder.resolve().name,
        read_json(generation) if generation.is_file() else {},
    )


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object from a file. Raises `ModelError` when it is not one."""
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON ({error}); fetch the file again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object; fetch the file again.")
    return value


def parse_config(
    raw: Mapping[str, Any], name: str, generation: Mapping[str, Any] | None = None
) -> ModelConfig:
    """A config.json (and generation_config.json) already read. Raises `ModelError`."""
    fields = Fields(raw, name)
    architecture = _architecture(fields)
    _refuse_unsupported(fields)
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    bias = fields.flag("attention_bias")
    qwen2 = architecture is Architecture.QWEN2
    config = ModelConfig(
        name=name,
        architecture=architecture,
        num_layers=fields.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", _default_head_dim(architecture, hidden, heads)),
        vocab_size=fields.integer("vocab_size"),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=_rope(fields).number("rope_theta", _DEFAULT_ROPE_THETA),
        rope_scaling=_rope_scaling(fields),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        attention_bias=qwen2 or bias,
        output_bias=bias and not qwen2,
        mlp_bias=architecture is Architecture.LLAMA and fields.flag("mlp_bias"),
        qk_norm=architecture is Architecture.QWEN3,
        eos_token_ids=_eos_token_ids(fields, Fields(generation or {}, name)),
    )
    _check_heads(config)
    return config


def _architecture(fields: Fields) -> Architecture:
    model_type = fields.raw.get("model_type")
    known = {architecture.value: architecture for architecture in Architecture}
    if model_type not in known:
        raise ModelError(
            f"{fields.name} is of model_type {model_type!r}, which is not supported: {_SUPPORTED}."
        )
    architecture = known[model_type]
    classes = fields.raw.get("architectures") or [_CAUSAL_LM[architecture]]
    if classes != [_CAUSAL_LM[architecture]]:
        raise ModelError(
            f"{fields.name} is a {', '.join(map(str, classes))}, which is not supported:"
            f" {_SUPPORTED}, as {_CAUSAL_LM[architecture]}."
        )
    return architecture


def _refuse_unsupported(fields: Fields) -> None:
    """Raise for features that change the arithmetic and that the decoder does not have."""
    raw = fields.raw
    activation = raw.get("hidden_act", "silu")
    if activation != "silu":
        fields.refuse("hidden_act", activation, "only 'silu' is supported")
    if raw.get("quantization_config"):
        method = Fields(raw["quantization_config"], fields.name).raw.get("quant_method", "unknown")
        fields.refuse(
            "quantization_config",
            method,
            "quantized weights are not supported; use the model's bfloat16 or float32 release",
        )
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if raw.get(key):
            fields.refuse(key, raw[key], "mixtures of experts are not supported")
    if "AutoModelForCausalLM" in (raw.get("auto_map") or {}):
        fields.refuse("auto_map", raw["auto_map"], "code that comes with a model is never run")
    _refuse_sliding_window(fields)


def _refuse_sliding_window(fields: Fields) -> None:
    """Qwen files carry a window that is mostly off; it counts only where a layer uses it."""
    raw = fields.raw
    kinds = raw.get("layer_types")
    if kinds is None:
        window = raw.get("sliding_window") if fields.flag("use_sliding_window") else None
        first = fields.integer("max_window_layers", 28, least=0)
        if window is None or first >= fields.integer("num_hidden_layers"):
            return
        fields.refuse("sliding_window", window, "only full attention is supported")
    other = sorted({str(kind) for kind in kinds} - {"full_attention"})
    if other:
        fields.refuse("layer_types", ", ".join(other), "only 'full_attention' is supported")


def _rope(fields: Fields) -> Fields:
    """The rotary settings in one place, wherever the file keeps them."""
    raw = fields.raw
    rope = dict(fields.section("rope_parameters") or fields.section("rope_scaling"))
    for key in ("rope_theta", "partial_rotary_factor"):
        if rope.get(key) is None and raw.get(key) is not None:
            rope[key] = raw[key]
    factor = rope.get("partial_rotary_factor") or 1.0
    if factor != 1.0:
        fields.refuse("partial_rotary_factor", factor, "only rotation of the whole head is")
    return Fields(rope, fields.name)


def _rope_scaling(fields: Fields) -> RopeScaling | None:
    rope = _rope(fields)
    kind = rope.raw.get("rope_type") or rope.raw.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        fields.refuse("rope_type", kind, "only 'default' and 'llama3' are supported")
    return RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_position_embeddings=rope.integer("original_max_position_embeddings"),
    )


def _default_head_dim(architecture: Architecture, hidden: int, heads: int) -> int:
    return 128 if architecture is Architecture.QWEN3 else hidden // heads


def _eos_token_ids(config: Fields, generation: Fields) -> tuple[int, ...]:
    """What generation stops at: generation_config.json's word counts before config.json's."""
    for fields in (generation, config):
        ids = fields.token_ids("eos_token_id")
        if ids:
            return ids
    return ()


def _check_heads(config: ModelConfig) -> None:
    if config.num_heads % config.num_kv_heads:
        raise ModelError(
            f"{config.name} has {config.num_heads} query heads on {config.num_kv_heads} key-value"
            " heads, but each key-value head must serve the same number of query heads."
        )
    if config.head_dim % 2:
        raise ModelError(
            f"{config.name} has head_dim {config.head_dim}, but rotary embedding needs an even one."
        )
