"""A model ready to build: its config and its tensors, from a folder or made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from minicache.model_config import CONFIGS, ModelConfig, ModelError, read_config, tensor_shapes
from minicache.models.find import find, model_name
from minicache.models.store import local_folder
from minicache.weights.check import needed_tensors
from minicache.weights.dummy import DummyTensors
from minicache.weights.folder import stored_tensors
from minicache.weights.tensor_files import TensorFiles

_FORMATS = ("auto", "dummy")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A config, and tensors under their Hugging Face names, read on access.

    A tied model has no `lm_head.weight`. Read each tensor once and keep it: some are made anew.
    """

    config: ModelConfig
    tensors: Mapping[str, Tensor]
    folder: Path | None
    """Where config.json and tokenizer.json lie; None for random weights of a named config."""


def load(
    name_or_path: str | Path,
    *,
    load_format: str = "auto",
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Checkpoint:
    """Open the model `name_or_path`: a known name, a folder, a .gguf file, or a hub id.

    `load_format` "dummy" makes random weights of the same size instead, seeded by `seed`. With
    `dtype` None tensors come as stored (random ones in bfloat16); otherwise converted one by one.
    Raises `ModelError` in one sentence for anything missing, damaged or not supported.
    """
    if load_format not in _FORMATS:
        raise ModelError(
            f"load_format is {load_format!r}, but it must be one of {', '.join(_FORMATS)}."
        )
    place = torch.device(device)
    if load_format == "dummy":
        return _dummy(name_or_path, dtype or torch.bfloat16, place, seed)
    folder = find(name_or_path)
    config = read_config(folder, model_name(name_or_path))
    stored = needed_tensors(stored_tensors(folder), config)
    return Checkpoint(config, TensorFiles(stored, dtype, place), folder)


def _dummy(
    name_or_path: str | Path, dtype: torch.dtype, device: torch.device, seed: int
) -> Checkpoint:
    """A named config needs no files; a tokenizer is there only where the model was pulled."""
    name = str(name_or_path)
    folder = local_folder(name) if name in CONFIGS else find(name)
    config = CONFIGS.get(name) or read_config(find(name), model_name(name))
    return Checkpoint(config, DummyTensors(tensor_shapes(config), dtype, device, seed), folder)
