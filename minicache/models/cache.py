"""Where pulled models lie on disk, and folders that appear complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "MINICACHE_CACHE"
_STALE_SECONDS = 3600


def cache_folder() -> Path:
    """The folder that `MINICACHE_CACHE` names, else the platform's cache folder for this user."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("minicache")


def models_folder() -> Path:
    """Finished models, a folder each."""
    return cache_folder() / "models"


def downloads_folder() -> Path:
    """Verified downloads, kept so that a pull can be taken up again without the network."""
    return cache_folder() / "downloads"


def is_complete(folder: Path) -> bool:
    """Whether config.json and every safetensors file that the folder's index names are there."""
    if not (folder / "config.json").is_file():
        return False
    if (folder / "model.safetensors").is_file():
        return True
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return all((folder / shard).is_file() for shard in set(index["weight_map"].values()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


@contextmanager
def work_folder(parent: Path, name: str) -> Generator[Path]:
    """A new hidden folder in `parent`, gone when the block ends, however it ends.

    What processes that were killed have left there more than an hour ago goes too.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f".{name}-*"):
        if left.stat().st_mtime < time.time() - _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def made_at_once(target: Path) -> Generator[Path]:
    """A folder to fill with a model, which becomes `target` when the block ends well.

    An incomplete folder in its place is removed; a complete one, which another process has made
    meanwhile, stays.
    """
    with work_folder(target.parent, target.name) as work:
        yield work
        work.chmod(0o755)  # a temporary folder is closed to the other users of a shared cache
        if not is_complete(target):
            shutil.rmtree(target, ignore_errors=True)
            _rename(work, target)


def _rename(work: Path, target: Path) -> None:
    try:
        work.rename(target)
    except OSError:
        if not is_complete(target):  # else another process was faster by a moment
            raise
