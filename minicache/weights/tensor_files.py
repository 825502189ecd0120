"""Tensors of safetensors files by name, mapped into memory and read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from minicache.model_config import ModelError
from minicache.model_config.layout import Shape

DTYPES: Mapping[str, torch.dtype] = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_CPU = torch.device("cpu")


class StoredTensor(NamedTuple):
    """What a file's head says of one tensor; `dtype` in safetensors' words, such as BF16."""

    path: Path
    shape: Shape
    dtype: str


class TensorFiles(Mapping[str, Tensor]):
    """The tensors of a checkpoint, read on access and not kept.

    Each access maps the file anew. With `dtype` None or as stored, on a CPU, the tensor is a view
    into that mapping, which lives as long as it does: no copy, and pages come in when they are
    used. Otherwise the tensor is copied and the mapping goes. So whoever copies what it gets holds
    at most one stored tensor beside the copies.
    """

    __slots__ = ("_device", "_dtype", "_stored")

    def __init__(
        self,
        stored: Mapping[str, StoredTensor],
        dtype: torch.dtype | None = None,
        device: torch.device = _CPU,
    ) -> None:
        self._stored = stored
        self._dtype = dtype
        self._device = device

    def __getitem__(self, name: str) -> Tensor:
        path, _, stored_dtype = self._stored[name]
        dtype = self._dtype or DTYPES[stored_dtype]
        return open_safetensors(path).get_tensor(name).to(self._device, dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def open_safetensors(path: Path) -> Any:
    """The opened file. Raises `ModelError` when it is cut short or damaged."""
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} cannot be read as safetensors ({error}); fetch the file again."
        ) from error


def read_head(path: Path) -> dict[str, StoredTensor]:
    """What the file holds, without its data. Raises `ModelError` when it is damaged."""
    file = open_safetensors(path)
    names: list[str] = file.keys()
    slices = {name: file.get_slice(name) for name in names}
    return {
        name: StoredTensor(path, tuple(part.get_shape()), part.get_dtype())
        for name, part in slices.items()
    }
