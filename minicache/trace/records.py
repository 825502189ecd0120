"""What one row of a trace says. Times are seconds on one clock, the engine's or a virtual one."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from minicache.request import FinishReason


class EventKind(Enum):
    """What the scheduler did to a request."""

    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    RESUMED = "resumed"
    """Admitted again after a preemption."""
    FINISHED = "finished"


class Occupancy(NamedTuple):
    """The pool and the queues when a step had been committed. held + cached + free = total."""

    total: int
    """Pages of the pool."""
    held: int
    """Pages that some request holds."""
    cached: int
    """Pages that nobody holds and whose content can still be hit; they count as allocatable."""
    stored_tokens: int
    """Tokens whose keys and values are stored for live requests."""
    waiting: int
    running: int


class StepRecord(NamedTuple):
    """One step: when it ran, what it held, and how full the pool was after it."""

    step: int
    t_start: float
    t_end: float
    t_planned: float | None
    """When the scheduler planned it; None where nobody noted it."""
    num_decodes: int
    prefill_tokens: int
    budget: int
    """The token limit it was planned under."""
    pages_total: int
    pages_held: int
    pages_cached: int
    stored_tokens: int
    waiting: int
    running: int


class ItemRecord(NamedTuple):
    """One request's part of a step: positions `[start, stop)` were computed."""

    step: int
    number: int
    start: int
    stop: int
    samples: bool


class RequestRecord(NamedTuple):
    """One request, from its planned arrival to its end."""

    number: int | None
    """The engine's number for it; None when it was refused."""
    id: str
    client: str
    group: str
    """The workload's name for its kind ('chat', 'document', …); may be empty."""
    arrival: float
    """Planned send time: where waiting starts to count."""
    sent: float
    """When it really reached the engine."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that the prefix cache supplied at the first admission."""
    priority: int
    first_scheduled: float | None
    finished: float | None
    reason: FinishReason | None
    """None while it is alive, and when it was refused."""
    error: str | None
    refused: bool


class TokenRecord(NamedTuple):
    """One token handed to a request."""

    number: int
    step: int
    time: float


class EventRecord(NamedTuple):
    """One decision of the scheduler about one request."""

    number: int
    kind: EventKind
    time: float


STEP_COLUMNS = {
    "step": "int", "t_start": "float", "t_end": "float", "t_planned": "float?",
    "num_decodes": "int", "prefill_tokens": "int", "budget": "int",
    "pages_total": "int", "pages_held": "int", "pages_cached": "int",
    "stored_tokens": "long", "waiting": "int", "running": "int",
}  # fmt: skip
ITEM_COLUMNS = {"step": "int", "number": "int", "start": "int", "stop": "int", "samples": "bool"}
REQUEST_COLUMNS = {
    "number": "int?", "id": "text", "client": "text", "group": "text",
    "arrival": "float", "sent": "float", "prompt_tokens": "int", "cached_tokens": "int",
    "priority": "int", "first_scheduled": "float?", "finished": "float?",
    "reason": "text", "error": "text", "refused": "bool",
}  # fmt: skip
TOKEN_COLUMNS = {"number": "int", "step": "int", "time": "float"}
EVENT_COLUMNS = {"number": "int", "kind": "text", "time": "float"}


def request_record(*values: object) -> RequestRecord:
    """The view of a row of the request table: an empty reason or error is None."""
    row = RequestRecord(*values)  # pyright: ignore[reportArgumentType]  # columns are in field order
    reason = FinishReason(row.reason) if row.reason else None
    return row._replace(reason=reason, error=row.error or None)


def event_record(number: int, kind: str, time: float) -> EventRecord:
    """The view of a row of the event table."""
    return EventRecord(number, EventKind(kind), time)
