"""What a folder holds against what its config asks for, before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from minicache.model_config import ModelConfig, ModelError, tensor_shapes
from minicache.weights.tensor_files import DTYPES, StoredTensor, TensorFiles

_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
_COMPUTED = "rotary_emb.inv_freq"
"""Old Llama files store the rotary frequencies, which follow from the config."""


def needed_tensors(
    stored: Mapping[str, StoredTensor], config: ModelConfig
) -> dict[str, StoredTensor]:
    """The tensors the model uses, in its order.

    Raises `ModelError` naming the first tensor that is missing, unexpected, or of a wrong shape or
    type. A head stored beside a tied embedding must equal it, and is then left out.
    """
    expected = tensor_shapes(config)
    for name, shape in expected.items():
        if name not in stored:
            raise ModelError(
                f"{config.name} lacks the tensor {name} of shape {_times(shape)}, which its config"
                " asks for; fetch the weights again, or correct config.json."
            )
        _check_tensor(name, shape, stored[name], config)
    for name in sorted(stored.keys() - expected.keys()):
        _check_extra(name, stored, config)
    return {name: stored[name] for name in expected}


def _check_tensor(
    name: str, shape: tuple[int, ...], found: StoredTensor, config: ModelConfig
) -> None:
    if found.shape != shape:
        raise ModelError(
            f"{config.name} has {name} of shape {_times(found.shape)}, but its config asks for"
            f" {_times(shape)}; weights and config.json must be of the same model."
        )
    if found.dtype not in DTYPES:
        raise ModelError(
            f"{config.name} stores {name} as {found.dtype}, but only {', '.join(DTYPES)} are"
            " supported; use the model's bfloat16 or float32 release."
        )


def _check_extra(name: str, stored: Mapping[str, StoredTensor], config: ModelConfig) -> None:
    if name.endswith(_COMPUTED):
        return
    if name == _HEAD and config.tie_word_embeddings:
        _check_tensor(name, stored[_EMBEDDING].shape, stored[name], config)
        tensors = TensorFiles(stored)
        if torch.equal(tensors[_HEAD], tensors[_EMBEDDING]):
            return
        raise ModelError(
            f"{config.name} says tie_word_embeddings, but its {_HEAD} differs from {_EMBEDDING};"
            " set tie_word_embeddings to false in config.json."
        )
    raise ModelError(
        f"{config.name} has an unexpected tensor {name} of shape {_times(stored[name].shape)},"
        " which its config does not ask for; weights and config.json must be of the same model."
    )


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"
