"""Random weights at a model's true size, for timing: made when asked for, the same for a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minicache.model_config.layout import Shape

_BIAS_SCALE = 0.02


@dataclass(frozen=True, slots=True)
class DummyTensors(Mapping[str, Tensor]):
    """Every access makes the tensor anew: only what the caller keeps costs memory.

    Norms are ones, biases small, and a matrix of n columns has entries of standard deviation
    1 / √n, so that activations and logits stay of order one through any number of layers.
    """

    shapes: Mapping[str, Shape]
    dtype: torch.dtype
    device: torch.device
    seed: int

    def __getitem__(self, name: str) -> Tensor:
        values = torch.empty(self.shapes[name], dtype=self.dtype, device=self.device)
        if name.endswith("norm.weight"):
            return values.fill_(1.0)
        scale = _BIAS_SCALE if name.endswith(".bias") else values.shape[-1] ** -0.5
        generator = torch.Generator(self.device).manual_seed(_tensor_seed(self.seed, name))
        return values.normal_(0.0, scale, generator=generator)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def _tensor_seed(seed: int, name: str) -> int:
    """Its own stream for every tensor, whatever the order in which they are asked for."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
