"""The least a step can take: bytes over bandwidth, or operations over rate, both measured here."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import torch

from minicache.model_config import ModelConfig


class Ceilings(NamedTuple):
    """What this machine reaches on plain library calls."""

    bytes_per_second: float
    """Reading memory that no cache holds."""
    flops_per_second: float
    """A large matrix product in the model's dtype."""


def measure_ceilings(dtype: torch.dtype) -> Ceilings:
    """Sum 256 MB, and multiply two 1,024 x 1,024 matrices."""
    data = torch.ones(2**26)
    a, b = torch.randn(2, 1024, 1024).to(dtype)
    return Ceilings(
        data.nbytes / _fastest(lambda: data.sum(), 5),
        2 * 1024**3 / _fastest(lambda: a @ b, 20),
    )


def decode_floor(config: ModelConfig, dtype: torch.dtype, context: int, machine: Ceilings) -> float:
    """Seconds of one decode step alone: every weight and every key and value is read once."""
    weights = (config.num_parameters - _unread(config)) * dtype.itemsize
    stored = context * config.kv_bytes_per_token(dtype.itemsize)
    return (weights + stored) / machine.bytes_per_second


def prefill_floor(config: ModelConfig, tokens: int, machine: Ceilings) -> float:
    """Seconds of a whole prompt: two operations a weight and token, four a visible pair and number.

    The head answers for one token only.
    """
    embeddings = config.vocab_size * config.hidden_size
    tables = 1 if config.tie_word_embeddings else 2
    weights = config.num_parameters - embeddings * tables
    pairs = tokens * (tokens + 1) // 2
    attention = 4 * pairs * config.num_heads * config.head_dim * config.num_layers
    return (2 * weights * tokens + attention + 2 * embeddings) / machine.flops_per_second


def _unread(config: ModelConfig) -> int:
    """An embedding of its own gives one row a token."""
    return 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size


def _fastest(run: Callable[[], object], repeats: int) -> float:
    run()
    times: list[float] = []
    for _ in range(repeats):
        begin = perf_counter()
        run()
        times.append(perf_counter() - begin)
    return min(times)
