"""What the model reads in one step: ragged rows, where they belong, which of them to answer for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from minicache.protocols import AttentionBatch


@dataclass(frozen=True, slots=True)
class StepInputs:
    """T tokens of several sequences, one after the other: first the decodes, then the chunks."""

    tokens: Tensor
    """(T,) int64."""
    positions: Tensor
    """(T,) int64: where each token stands in its sequence."""
    pages: Tensor
    """(T,) int64: the page that takes each token's keys and values."""
    offsets: Tensor
    """(T,) int64: where in that page."""
    sampled: Tensor
    """(R,) int64: the rows whose logits are wanted."""
    num_decode_rows: int
    """Rows `[0, num_decode_rows)` belong to `decodes`, the rest to `chunks`."""
    decodes: AttentionBatch | None
    chunks: AttentionBatch | None
