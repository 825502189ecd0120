"""Bytes are counted, not allocated: no torch."""

from __future__ import annotations

from minicache.lab.cases.case import Case, Inputs
from minicache.model_config import CONFIGS, Architecture, ModelConfig


class ShortConfig(ModelConfig):
    """A config that says only what matters for a token's bytes."""

    def __repr__(self) -> str:
        """The five numbers that a learner may use or mistake for one another."""
        return (
            f"config with num_layers={self.num_layers}, num_heads={self.num_heads}, "
            f"num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}, "
            f"hidden_size={self.hidden_size}"
        )


def _config(layers: int, heads: int, kv_heads: int, head_dim: int, hidden: int) -> ShortConfig:
    return ShortConfig(
        name="a small example",
        architecture=Architecture.LLAMA,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=1000,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
    )


def _named(name: str) -> ShortConfig:
    known = CONFIGS[name]
    return _config(
        known.num_layers, known.num_heads, known.num_kv_heads, known.head_dim, known.hidden_size
    )


def _case(name: str, about: str, config: ShortConfig, bytes_per_element: int, answer: int) -> Case:
    def inputs() -> Inputs:
        return {"config": config, "bytes_per_element": bytes_per_element}

    def right(config: ModelConfig, bytes_per_element: int) -> int:
        return answer

    return Case(name, about, inputs, right)


CASES = (
    _case(
        "one layer, one head",
        "A key and a value of 4 numbers each, 2 bytes a number.",
        _config(1, 1, 1, 4, 4),
        2,
        16,
    ),
    _case(
        "three layers",
        "Every layer keeps its own keys and values.",
        _config(3, 2, 2, 4, 8),
        2,
        96,
    ),
    _case(
        "a key/value head for each query head",
        "The shape of older models (Llama-2-7B: 32 layers, 32 heads of 128).",
        _config(32, 32, 32, 128, 4096),
        2,
        524_288,
    ),
    _case(
        "fewer key/value heads: smollm2-135m",
        "9 query heads share 3 KV heads; only the KV heads are stored.",
        _named("smollm2-135m"),
        2,
        23_040,
    ),
    _case(
        "float32",
        "4 bytes a number.",
        _config(2, 2, 2, 8, 16),
        4,
        256,
    ),
    _case(
        "8-bit cache",
        "1 byte a number: half of bfloat16.",
        _config(2, 4, 4, 8, 32),
        1,
        128,
    ),
    _case(
        "head_dim is its own number: qwen3-0.6b",
        "Here head_dim is 128, though hidden_size / num_heads is 64.",
        _named("qwen3-0.6b"),
        2,
        114_688,
    ),
    _case(
        "wide heads",
        "head_dim 16 with a hidden size of 16 and 2 heads.",
        _config(1, 2, 2, 16, 16),
        2,
        128,
    ),
)
