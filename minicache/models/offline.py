"""`HF_HUB_OFFLINE`: when it is set, nothing is fetched, from the hub or from anywhere else."""

from __future__ import annotations

import os

_YES = {"1", "ON", "YES", "TRUE"}


def is_offline() -> bool:
    """Whether `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` is set, read as huggingface_hub does."""
    values = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(value.upper() in _YES for value in values)


def offline_sentence(what: str, way_out: str) -> str:
    """What to tell a person whose model would have to be fetched."""
    return (
        f"{what} is not on this machine, and HF_HUB_OFFLINE forbids fetching it; unset"
        f" HF_HUB_OFFLINE, or {way_out}."
    )
