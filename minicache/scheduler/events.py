"""What a scheduler reports: tokens as they come, and the turns in a request's life."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from minicache.request import Request


class EventKind(Enum):
    """A turn in a request's life."""

    ADMITTED = "admitted"
    """It got a row, for the first time or again after a preemption."""
    PREEMPTED = "preempted"
    """It gave its pages back, and waits again."""
    FINISHED = "finished"
    """It ended; `Request.finish_reason` says why. Exactly one for every submitted request."""


class SchedulerEvent(NamedTuple):
    """Something happened to a request, at `time` seconds on the engine's clock."""

    kind: EventKind
    request: Request
    time: float


class TokenEvent(NamedTuple):
    """A request got a token; `finished` says that it was its last."""

    request: Request
    token: int
    finished: bool
