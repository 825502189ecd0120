"""What can be pulled and what is here: the rows of `minicache models list`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minicache.models.catalog import CATALOG, KnownModel
from minicache.models.store import local_folder


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One known model. Every one of them also runs with random weights (`--load-format dummy`)."""

    name: str
    parameters: int
    bf16_bytes: int
    """Size of the weights in bfloat16."""
    source: str
    licence: str
    folder: Path | None
    """Where it lies, or None when it is not pulled."""
    disk_bytes: int
    """What it takes on disk, 0 when it is not pulled."""

    @property
    def pulled(self) -> bool:
        """Whether it is ready to load."""
        return self.folder is not None


def available() -> list[ModelEntry]:
    """Every known model, in the catalog's order. Touches no network."""
    return [_entry(name, model) for name, model in CATALOG.items()]


def _entry(name: str, model: KnownModel) -> ModelEntry:
    folder = local_folder(name)
    return ModelEntry(
        name=name,
        parameters=model.config.num_parameters,
        bf16_bytes=2 * model.config.num_parameters,
        source=str(model.source),
        licence=model.licence,
        folder=folder,
        disk_bytes=_disk_bytes(folder) if folder else 0,
    )


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
