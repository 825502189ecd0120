"""What happened: the columnar trace of a run, its JSON form, and its export to Perfetto."""

from minicache.trace.grouping import Grouped, group, request_rows
from minicache.trace.phases import Phase, PhaseKind, end_of, phases
from minicache.trace.records import (
    EventKind,
    EventRecord,
    ItemRecord,
    Occupancy,
    RequestRecord,
    StepRecord,
    TokenRecord,
)
from minicache.trace.table import Table
from minicache.trace.trace import Trace

__all__ = [
    "EventKind",
    "EventRecord",
    "Grouped",
    "ItemRecord",
    "Occupancy",
    "Phase",
    "PhaseKind",
    "RequestRecord",
    "StepRecord",
    "Table",
    "TokenRecord",
    "Trace",
    "end_of",
    "group",
    "phases",
    "request_rows",
]
