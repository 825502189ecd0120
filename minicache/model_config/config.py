"""The shape of a Llama-family decoder, and the sizes that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class ModelError(ValueError):
    """A model cannot be found, fetched or run. The message names the value and the way out."""


class Architecture(Enum):
    """The decoders that minicache runs. The value is the `model_type` of config.json."""

    LLAMA = "llama"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama-3.1's frequency-dependent stretch of the rotary wavelengths (`rope_type` "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that fixes a model's tensors and arithmetic, except the weights."""

    name: str
    architecture: Architecture
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    """Biases on the q, k and v projections (Qwen2), and on o where the config says so."""
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMS norm of each query and key head before the rotary embedding (Qwen3)."""
    eos_token_ids: tuple[int, ...] = ()

    def with_eos(self, token_ids: tuple[int, ...]) -> ModelConfig:
        """The same model with other end-of-sequence tokens."""
        return replace(self, eos_token_ids=token_ids)

    @property
    def num_parameters(self) -> int:
        """Weights in the model; a tied embedding counts once."""
        q = self.num_heads * self.head_dim
        kv = self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (q + 2 * kv) + q * self.hidden_size
        attention += (q + 2 * kv) * self.attention_bias + self.hidden_size * self.output_bias
        mlp = 3 * self.hidden_size * self.intermediate_size
        mlp += (2 * self.intermediate_size + self.hidden_size) * self.mlp_bias
        norms = 2 * self.hidden_size + 2 * self.head_dim * self.qk_norm
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_layers * (attention + mlp + norms) + embeddings + self.hidden_size

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Keys and values of one token in all layers: 2 · layers · kv heads · head_dim · bytes."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_element
