"""A GGUF file opened: its metadata by key and its tensors by name, mapped into memory.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, read by the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minicache.model_config import ModelError
from minicache.model_config.fields import Fields

if TYPE_CHECKING:
    from gguf import GGUFReader
    from gguf.gguf_reader import ReaderTensor

_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class GgufFile:
    """One opened file. Tensor data are views into the mapped file, still quantized."""

    path: Path
    fields: Fields
    tensors: Mapping[str, ReaderTensor]


def open_gguf(path: Path) -> GgufFile:
    """Read the head of a GGUF file and map its tensors.

    Raises `ModelError` when the file is cut short, damaged or no GGUF at all.
    """
    try:
        _check_magic(path)
        file = _read(path)
    except ModelError:
        raise
    except Exception as error:  # whatever the reader trips over in damaged bytes
        raise ModelError(_damaged(path, _one_line(error))) from error
    _check_extent(file)
    return file


def _check_magic(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start != _MAGIC:
        raise ModelError(
            f"{path} is not a GGUF file: it starts with {start!r} instead of {_MAGIC!r}; fetch it"
            " again."
        )


def _read(path: Path) -> GgufFile:
    reader = _bounded_reader()(path)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    return GgufFile(path, Fields(metadata, str(path)), tensors)


def _bounded_reader() -> type[GGUFReader]:
    """The package's reader takes bytes past the end for empty ones and counts on: stop it."""
    from gguf import GGUFReader

    class BoundedReader(GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            values = super()._get(offset, dtype, count, override_order)
            if len(values) < count:
                raise EOFError(f"bytes from {offset} on are needed")
            return values

    return BoundedReader


def _check_extent(file: GgufFile) -> None:
    """The reader maps what is there, even where that is less than a tensor needs."""
    size = file.path.stat().st_size
    for name, tensor in file.tensors.items():
        if tensor.data_offset + tensor.n_bytes > size or tensor.data.nbytes != tensor.n_bytes:
            raise ModelError(_damaged(file.path, f"tensor {name} runs past its end"))


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _damaged(path: Path, detail: str) -> str:
    size = path.stat().st_size if path.exists() else 0
    return f"{path} ({size} bytes) is cut short or damaged ({detail}); fetch it again."
