"""Rotary position embedding: pairs of numbers are turned by an angle that grows with position."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from minicache.model_config import ModelConfig, RopeScaling


class Rope(NamedTuple):
    """Angles of every position, to be looked up. Number i of a head is paired with i + D/2."""

    cos: Tensor
    """(L, D): the cosines, once for each half."""
    sin: Tensor
    """(L, D): minus the sines, then the sines, so that a turn is x · cos + swapped(x) · sin."""

    def at(self, positions: Tensor) -> Rope:
        """The angles of `positions: (T,)`, as `(T, 1, D)`: the same for all heads of a row."""
        return Rope(self.cos[positions, None], self.sin[positions, None])


def make_rope(
    config: ModelConfig, max_positions: int, *, dtype: torch.dtype, device: torch.device
) -> Rope:
    """Tables for positions [0, max_positions). Su et al. 2021, "RoFormer"."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**steps  # (D / 2,) radians a token
    if config.rope_scaling is not None:
        frequencies = stretch(frequencies, config.rope_scaling)
    angles = torch.arange(max_positions).float()[:, None] * frequencies  # (L, D / 2)
    cos, sin = angles.cos(), angles.sin()
    tables = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
    return Rope(*(table.to(device=device, dtype=dtype) for table in tables))


def stretch(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3.1's scaling: slow turns are slowed by `factor`, fast ones kept, the rest blended.

    A frequency counts as slow when its wave is longer than the original context divided by
    `low_freq_factor`, as fast when it is shorter than that divided by `high_freq_factor`.
    """
    waves = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((waves - low) / (high - low)).clamp(0, 1)  # 1: fast, as it was; 0: slow
    return frequencies * kept + frequencies / scaling.factor * (1 - kept)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn heads `x: (T, heads, D)`, each row by its own angles: `Rope.at` of its position."""
    half = x.shape[-1] // 2
    swapped = torch.cat([x[..., half:], x[..., :half]], dim=-1)
    return torch.addcmul(x * cos, swapped, sin)
