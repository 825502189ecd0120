"""Configs known by name, for random weights at the true size (`--load-format dummy`).

Numbers are those of each model's public config.json on the Hugging Face hub, read in 2026 (the
repository is named on each line). They describe shapes and arithmetic only; no weights come along.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from minicache.model_config.config import Architecture, ModelConfig, RopeScaling

_LLAMA_EOS = (128001, 128008, 128009)
_QWEN_EOS = (151645, 151643)


def _llama_scaling(factor: float) -> RopeScaling:
    return RopeScaling(factor, 1.0, 4.0, original_max_position_embeddings=8192)


_ALL = (
    # HuggingFaceTB/SmolLM2-135M-Instruct
    ModelConfig(
        name="smollm2-135m",
        architecture=Architecture.LLAMA,
        num_layers=30,
        hidden_size=576,
        intermediate_size=1536,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab_size=49152,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        eos_token_ids=(2,),
    ),
    # meta-llama/Llama-3.2-1B-Instruct
    ModelConfig(
        name="llama-3.2-1b",
        architecture=Architecture.LLAMA,
        num_layers=16,
        hidden_size=2048,
        intermediate_size=8192,
        num_heads=32,
        num_kv_heads=8,
        head_dim=64,
        vocab_size=128256,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        rope_scaling=_llama_scaling(32.0),
        tie_word_embeddings=True,
        eos_token_ids=_LLAMA_EOS,
    ),
    # meta-llama/Llama-3.1-8B-Instruct
    ModelConfig(
        name="llama-3.1-8b",
        architecture=Architecture.LLAMA,
        num_layers=32,
        hidden_size=4096,
        intermediate_size=14336,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=128256,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        rope_scaling=_llama_scaling(8.0),
        eos_token_ids=_LLAMA_EOS,
    ),
    # Qwen/Qwen2.5-0.5B-Instruct
    ModelConfig(
        name="qwen2.5-0.5b",
        architecture=Architecture.QWEN2,
        num_layers=24,
        hidden_size=896,
        intermediate_size=4864,
        num_heads=14,
        num_kv_heads=2,
        head_dim=64,
        vocab_size=151936,
        max_position_embeddings=32768,
        rms_norm_eps=1e-6,
        rope_theta=1_000_000.0,
        tie_word_embeddings=True,
        attention_bias=True,
        eos_token_ids=_QWEN_EOS,
    ),
    # Qwen/Qwen3-0.6B
    ModelConfig(
        name="qwen3-0.6b",
        architecture=Architecture.QWEN3,
        num_layers=28,
        hidden_size=1024,
        intermediate_size=3072,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        rope_theta=1_000_000.0,
        tie_word_embeddings=True,
        qk_norm=True,
        eos_token_ids=_QWEN_EOS,
    ),
    # Qwen/Qwen3-8B
    ModelConfig(
        name="qwen3-8b",
        architecture=Architecture.QWEN3,
        num_layers=36,
        hidden_size=4096,
        intermediate_size=12288,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        rope_theta=1_000_000.0,
        qk_norm=True,
        eos_token_ids=_QWEN_EOS,
    ),
)

CONFIGS: Mapping[str, ModelConfig] = MappingProxyType({config.name: config for config in _ALL})
"""Every named config, smallest of its family first. Immutable."""
