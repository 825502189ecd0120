"""The parts an engine is built from, as Protocols: give the engine your own and it will use them.

The lessons end here: a learner's attention, page pool, policy or sampler is passed to `LLM(...)`
as an argument and drives the real model. Nothing is registered or patched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from minicache.plan import StepPlan, StepResult


class Executor(Protocol):
    """Runs steps: the real model, a fake, or a cost model on a virtual clock."""

    max_in_flight: int
    """How many submitted steps may be uncollected at once."""

    def submit(self, plan: StepPlan) -> None:
        """Start a step. Reads everything it needs from `plan` before it returns."""
        ...

    def collect(self) -> StepResult:
        """Wait for the oldest submitted step and return what came of it."""
        ...

    def close(self) -> None:
        """Release device memory and threads."""
        ...


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Where the query rows of B sequences sit, and where their keys and values are.

    Rows `[query_starts[b], query_starts[b + 1])` of `q` are the last tokens of sequence b, aligned
    at the end: with `t` rows, row i may see keys `[0, lengths[b] - t + i]`. The step has already
    written its own keys and values. Host values are upper bounds under a CUDA graph.
    """

    query_starts: Tensor
    """(B + 1,) int32."""
    lengths: Tensor
    """(B,) int32: stored tokens of each sequence, this step's included."""
    page_table: Tensor
    """(B, C) int32: page of tokens [c * N, (c + 1) * N); entries past the length are undefined."""
    max_query: int
    max_length: int
    host_query_starts: tuple[int, ...] = ()
    host_lengths: tuple[int, ...] = ()
    """The same on the host, for attention that loops in Python; empty under a CUDA graph."""


class PagedAttention(Protocol):
    """Causal attention of ragged query rows over a paged cache."""

    graph_safe: bool
    """Whether it may be captured in a CUDA graph: fixed grid, no host reads of device values."""

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        """`q: (T, H, D)`, pages `(P, K, N, D)` → `(T, H, D)`; past a length may be anything."""
        ...
