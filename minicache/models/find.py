"""From what a person typed to the folder that holds the model."""

from __future__ import annotations

import hashlib
from pathlib import Path

from minicache.model_config import ModelError
from minicache.models.cache import models_folder
from minicache.models.catalog import CATALOG
from minicache.models.hub import hub_folder
from minicache.models.progress import silent
from minicache.models.store import converted, is_hub_id, path, unknown_model

_FLOAT32_PER_BYTE = 8
"""Above what any quantization that is read expands to: Q4_1 has 5 bits where float32 has 32."""


def find(name_or_path: str | Path) -> Path:
    """The folder of a known name, a folder, a .gguf file (converted once), or a hub id.

    A known name means the pulled model even where the working directory holds a folder of that
    name; write ./NAME for the folder. Raises `ModelError`.
    """
    text = str(name_or_path)
    place = Path(text).expanduser()
    if text in CATALOG:
        return path(text)
    if place.is_dir():
        return _model_folder(place)
    if place.suffix == ".gguf":
        return _from_gguf(place)
    if place.exists():
        raise ModelError(
            f"{place} is a file, but a model is a folder with config.json and .safetensors files,"
            " or a .gguf file."
        )
    if is_hub_id(text):
        return hub_folder(text, silent)
    raise ModelError(unknown_model(text))


def model_name(name_or_path: str | Path) -> str:
    """How messages call the model: a folder's or file's own name, else what was typed."""
    text = str(name_or_path)
    place = Path(text).expanduser()
    if text in CATALOG or not place.exists():
        return text
    return place.stem if place.suffix == ".gguf" else place.resolve().name


def _model_folder(folder: Path) -> Path:
    gguf = sorted(folder.glob("*.gguf"))
    if gguf and not (folder / "config.json").exists():
        raise ModelError(f"{folder} is a folder around {gguf[0].name}; name the file {gguf[0]}.")
    return folder


def _from_gguf(file: Path) -> Path:
    """A folder in the cache for this very file: another size or date makes another folder."""
    if not file.is_file():
        raise ModelError(f"There is no file {file}; check the path.")
    stat = file.stat()
    identity = f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()
    target = models_folder() / f"{file.stem}-{digest[:12]}"
    return converted(file, target, file.stem, _FLOAT32_PER_BYTE * stat.st_size, silent)
