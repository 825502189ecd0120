"""Models by name: which are known, which are on this machine, and how they get there."""

from minicache.model_config import ModelError
from minicache.models.cache import cache_folder
from minicache.models.find import find
from minicache.models.listing import ModelEntry, available
from minicache.models.progress import Progress, Report, progress_bar, silent
from minicache.models.store import local_folder, path, pull

__all__ = [
    "ModelEntry",
    "ModelError",
    "Progress",
    "Report",
    "available",
    "cache_folder",
    "find",
    "local_folder",
    "path",
    "progress_bar",
    "pull",
    "silent",
]
