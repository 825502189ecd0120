"""A full disk, or one that cannot be written: told in one sentence, before or after the fact."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from minicache.model_config import ModelError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BARRED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.EEXIST}


@contextmanager
def disk_errors(action: str, folder: Path, variable: str) -> Generator[None]:
    """Turn a failed write below `folder` into a `ModelError`; `variable` names another place."""
    try:
        yield
    except Exception as error:
        number = error_number(error)
        if number is None:
            raise
        raise ModelError(_sentence(action, folder, variable, number)) from error


def check_free_space(action: str, folder: Path, variable: str, needed: int) -> None:
    """Raise `ModelError` before anything is written where `needed` bytes do not fit."""
    free = _free_bytes(folder)
    if free < needed:
        raise ModelError(
            f"{action} needs {_megabytes(needed)} in {folder}, but only {_megabytes(free)} are"
            f" free; free some space, or set {variable} to a folder on a larger disk."
        )


def error_number(error: Exception | str) -> int | None:
    """The system's number for a failed write, else None; pip and Rust say it only in words."""
    numbers = [int(number) for number in re.findall(r"(?:os error |\[Errno )(\d+)", str(error))]
    if isinstance(error, OSError) and error.errno is not None:
        numbers.append(error.errno)
    return next((number for number in numbers if number in _FULL | _BARRED), None)


def _sentence(action: str, folder: Path, variable: str, number: int) -> str:
    way_out = f"set {variable} to a folder on another disk, and run it again"
    if number in _FULL:
        free = _megabytes(_free_bytes(folder))
        return (
            f"{action} ran out of space in {folder} ({free} are free) and left nothing half done;"
            f" free some space, or {way_out}."
        )
    return f"{action} cannot write to {folder} ({os.strerror(number)}); {way_out}."


def _free_bytes(folder: Path) -> int:
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
