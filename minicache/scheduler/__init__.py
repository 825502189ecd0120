"""The step: running first, then waiting, under one token budget; preemption; cancel. No torch."""

from minicache.scheduler.config import SchedulerConfig
from minicache.scheduler.events import EventKind, SchedulerEvent, TokenEvent
from minicache.scheduler.scheduler import Scheduler, SchedulerStalled

__all__ = [
    "EventKind",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerEvent",
    "SchedulerStalled",
    "TokenEvent",
]
