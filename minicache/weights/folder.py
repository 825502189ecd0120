"""Which safetensors files of a folder hold the model: one file, or shards named by an index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from minicache.model_config import ModelError
from minicache.model_config.parse import read_json
from minicache.weights.tensor_files import StoredTensor, read_head

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor in the folder's safetensors files, as their heads describe it.

    Raises `ModelError` when there are none, a shard is missing, or index and shards disagree.
    """
    if (folder / _SINGLE).is_file():
        return read_head(folder / _SINGLE)
    if (folder / _INDEX).is_file():
        return _sharded(folder)
    raise ModelError(_no_weights(folder))


def _sharded(folder: Path) -> dict[str, StoredTensor]:
    weight_map = _weight_map(folder / _INDEX)
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(weight_map.values())):
        if not (folder / shard).is_file():
            raise ModelError(f"{folder} lacks {shard}, which {_INDEX} names; fetch it again.")
        tensors |= read_head(folder / shard)
    for name, shard in weight_map.items():
        if name not in tensors or tensors[name].path.name != shard:
            raise ModelError(
                f"{_INDEX} in {folder} says that {name} lies in {shard}, but it does not; fetch"
                " both again."
            )
    return tensors


def _weight_map(index: Path) -> Mapping[str, str]:
    """Tensor → file name. A name that leads out of the folder is refused."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index} has no weight_map; fetch the file again.")
    for shard in weight_map.values():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ModelError(
                f"{index} names the shard {shard!r}, but a shard must be a file of the same folder."
            )
    return weight_map


def _no_weights(folder: Path) -> str:
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        return (
            f"{folder} holds its weights as {pickles[0]}, a pickle, which can run code and is never"
            " read; use the model's safetensors release, or save it again with transformers."
        )

    return f"{folder} holds no {_SINGLE} and no {_INDEX}; fetch the model's weights."
