"""What a step does, and what came of it: plain data between scheduler, executor and trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minicache.request import SamplingParams


class PlanItem(NamedTuple):
    """One request's part of a step: positions `[start, stop)` are computed, KV written, in place.

    `tokens` holds the ids of those positions. It is empty for a decode whose input token is still
    in flight (`max_in_flight` 2): the executor then takes the token it sampled last for this row.
    `samples` says that the logits of position `stop - 1` give the token at position `stop`.
    """

    number: int
    row: int
    start: int
    stop: int
    samples: bool
    tokens: Sequence[int]


class Admission(NamedTuple):
    """A row of the page table gets a (new) owner: the executor forgets what the row held before."""

    row: int
    number: int
    params: SamplingParams


class PageEntry(NamedTuple):
    """A changed entry of the page table: tokens [column * N, (column + 1) * N) lie in `page`."""

    row: int
    column: int
    page: int


class StepPlan(NamedTuple):
    """One step: `items[:num_decodes]` are decodes, the rest are chunks, each in arrival order."""

    step: int
    items: list[PlanItem]
    num_decodes: int
    num_tokens: int
    """Scheduled tokens, never above the budget."""
    budget: int
    """The token budget that this step was planned under."""
    admissions: list[Admission]
    entries: list[PageEntry]


class TokenLogprobs(NamedTuple):
    """Log-probability (natural log) of the chosen token, and the best `(token, logprob)` pairs."""

    logprob: float
    top: list[tuple[int, float]]


class StepResult(NamedTuple):
    """What an executor reports of a step. `tokens[i]` belongs to the i-th item that samples."""

    step: int
    tokens: list[int]
    t_start: float
    t_end: float
    logprobs: dict[int, TokenLogprobs]
    """By request number, for those that asked."""
    errors: dict[int, str]
    """By request number: this request's part failed, and why. The others' results count."""
