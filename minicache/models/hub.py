"""A model folder from the Hugging Face hub, through huggingface_hub and its own cache."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from minicache.model_config import ModelError
from minicache.models.cache import is_complete
from minicache.models.disk import disk_errors
from minicache.models.offline import is_offline, offline_sentence
from minicache.models.progress import Progress, Report

_FILES = ["*.safetensors", "*.json", "*.jinja"]
"""What a model folder needs; no pickle is ever fetched."""
_HAND = "name a local folder instead"


def hub_folder(repo_id: str, report: Report) -> Path:
    """The snapshot of `repo_id`, downloaded where it is not complete in the hub's cache.

    Raises `ModelError` when it does not exist, is gated, has no safetensors or is out of reach.
    """
    folder = local_hub_folder(repo_id)
    if folder is not None:
        return folder
    if is_offline():
        raise ModelError(offline_sentence(repo_id, _HAND))
    folder = _download(repo_id, report)
    if not is_complete(folder):
        raise ModelError(
            f"{repo_id} on the Hugging Face hub holds no config.json with model.safetensors (or"
            " shards of it), and nothing else is read; choose another model."
        )
    return folder


def local_hub_folder(repo_id: str) -> Path | None:
    """The complete snapshot of `repo_id` in the hub's cache, else None. Touches no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repo_id, allow_patterns=_FILES, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return folder if is_complete(folder) else None


def _download(repo_id: str, report: Report) -> Path:
    from huggingface_hub import constants, errors, snapshot_download

    bar = _reporting_bar(report)
    try:
        with disk_errors(f"Fetching {repo_id}", Path(constants.HF_HUB_CACHE), "HF_HUB_CACHE"):
            return Path(snapshot_download(repo_id, allow_patterns=_FILES, tqdm_class=bar))
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{repo_id} is gated on the Hugging Face hub; accept its licence there, set HF_TOKEN,"
            f" and run it again, or {_HAND}."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ModelError(
            f"There is no model {repo_id!r} on the Hugging Face hub that you may read; check its"
            f" name, set HF_TOKEN if it is private, or {_HAND}."
        ) from error
    except ModelError:
        raise
    except Exception as error:  # the hub's HTTP library has exceptions of its own
        raise ModelError(
            f"{repo_id} could not be fetched from the Hugging Face hub ({_reason(error)}); check"
            f" the network connection and run it again, or {_HAND}."
        ) from error


def _reason(error: Exception) -> str:
    """What went wrong in few words: the hub's own messages are paragraphs."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    return "out of reach" if isinstance(error, LocalEntryNotFoundError) else type(error).__name__


def _reporting_bar(report: Report) -> Any:
    """The class of progress bar that huggingface_hub shall use: it draws nothing and reports."""
    import tqdm

    base: Any = tqdm.tqdm  # generic to the type checker, not to the interpreter

    class ReportingBar(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **(kwargs | {"file": io.StringIO()}))

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if self.unit == "B" and self.n:
                report(Progress("download", int(self.n), int(self.total or self.n)))

    return ReportingBar
