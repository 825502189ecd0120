"""Tiny Llama models as GGUF files, written as llama.cpp's converter writes them."""

from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "r e", "o n", "Ġ a", "Ġa n", "Ġ Ġ", "Ã ©", "1 2"]
MERGED = [merge.replace(" ", "") for merge in MERGES]
VOCABULARY = [*SPECIAL, *sorted(ByteLevel.alphabet()), *MERGED]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
CONFIG = LlamaConfig(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=len(VOCABULARY),
    max_position_embeddings=256,
    rope_theta=50_000.0,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    eos_token_id=2,
)
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def tiny_llama(tied=True):
    torch.manual_seed(1)
    config = LlamaConfig(**{**CONFIG.to_dict(), "tie_word_embeddings": tied})
    model = LlamaForCausalLM(config).eval()
    for value in model.parameters():
        torch.nn.init.normal_(value, mean=0.05, std=0.2)
    return model


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{PARTS[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.weight"


def permute(rows, heads):
    """Halves of each head become neighbouring pairs, as llama.cpp wants them."""
    count = rows.shape[0] // heads
    order = [half * (count // 2) + pair for pair in range(count // 2) for half in (0, 1)]
    return np.concatenate([rows[head * count : (head + 1) * count][order] for head in range(heads)])


def write_gguf(path: Path, model, quantization="F32", change=None):
    """`change(metadata, tensors)` may spoil the file; both are plain dicts."""
    metadata = tiny_metadata()
    tensors = {}
    for name, value in model.named_parameters():
        array = value.detach().numpy()
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        tensors[gguf_name(name)] = permute(array, heads) if heads else array
    if change is not None:
        change(metadata, tensors)
    writer = gguf.GGUFWriter(path, metadata.pop("general.architecture"))
    for key, (kind, value) in metadata.items():
        getattr(writer, f"add_{kind}")(key, value)
    for name, array in tensors.items():
        add_tensor(writer, name, array, quantization)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()


def add_tensor(writer, name, array, quantization):
    kind = gguf.GGMLQuantizationType[quantization if array.ndim > 1 else "F32"]
    writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)


def tiny_metadata():
    kinds = [3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL))
    return {
        "general.architecture": "llama",
        "llama.block_count": ("uint32", 2),
        "llama.context_length": ("uint32", 256),
        "llama.embedding_length": ("uint32", 64),
        "llama.feed_forward_length": ("uint32", 96),
        "llama.attention.head_count": ("uint32", 4),
        "llama.attention.head_count_kv": ("uint32", 2),
        "llama.rope.freq_base": ("float32", 50_000.0),
        "llama.rope.dimension_count": ("uint32", 16),
        "llama.attention.layer_norm_rms_epsilon": ("float32", 1e-5),
        "tokenizer.ggml.model": ("string", "gpt2"),
        "tokenizer.ggml.pre": ("string", "smollm"),
        "tokenizer.ggml.tokens": ("array", VOCABULARY),
        "tokenizer.ggml.token_type": ("array", kinds),
        "tokenizer.ggml.merges": ("array", MERGES),
        "tokenizer.ggml.bos_token_id": ("uint32", 1),
        "tokenizer.ggml.eos_token_id": ("uint32", 2),
        "tokenizer.ggml.unknown_token_id": ("uint32", 0),
        "tokenizer.ggml.add_bos_token": ("bool", False),
        "tokenizer.chat_template": ("string", TEMPLATE),
    }
