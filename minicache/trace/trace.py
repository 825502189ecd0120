"""The trace: what an engine did, written as it happens, in columns.

A real, a fake and a simulated engine write the same trace, so that every metric and picture works
on all three; `source` says which of them it was.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import Enum
from math import nan
from typing import Any

from minicache.plan import StepPlan, StepResult
from minicache.request import Request
from minicache.trace import json_format
from minicache.trace.perfetto import to_perfetto
from minicache.trace.records import (
    EVENT_COLUMNS,
    ITEM_COLUMNS,
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    TOKEN_COLUMNS,
    EventKind,
    EventRecord,
    ItemRecord,
    Occupancy,
    RequestRecord,
    StepRecord,
    TokenRecord,
    event_record,
    request_record,
)
from minicache.trace.table import Table


class Trace:
    """Tables of steps, items, requests, tokens and events.

    Four million tokens take at most 200 MB when eight or more requests run in a step: 33 bytes a
    token and its item, 64 a step, and an eighth of spare room.
    Requests are named by the engine's `number`, which grows.
    """

    def __init__(self, source: str, *, page_size: int = 16) -> None:
        """`source` is shown in the corner of every picture: 'measured here: Intel Xeon, 2 cores',
        'recorded: NVIDIA H200, 2026-12-02' or 'simulated (fit error 3 %)'; further lines are notes.
        """
        self.source = source
        self.page_size = page_size
        self.steps: Table[StepRecord] = Table(StepRecord, STEP_COLUMNS)
        self.items: Table[ItemRecord] = Table(ItemRecord, ITEM_COLUMNS)
        self.requests: Table[RequestRecord] = Table(request_record, REQUEST_COLUMNS)
        self.tokens: Table[TokenRecord] = Table(TokenRecord, TOKEN_COLUMNS)
        self.events: Table[EventRecord] = Table(event_record, EVENT_COLUMNS)
        self._rows: dict[int, int] = {}
        self._preempted: set[int] = set()

    def add_request(self, request: Request, sent: float, *, group: str = "") -> None:
        """Note a request that the engine took. `sent` is when it really came, in seconds."""
        self._rows[request.number] = len(self.requests)
        self._append_request(request, request.number, sent, group)

    def add_refused(self, request: Request, sent: float, error: str, *, group: str = "") -> None:
        """Note a request that the engine refused, and why. It gets no number."""
        self._append_request(request, -1, sent, group)
        self._end(len(self.requests) - 1, sent, "", error)
        self.requests.set(len(self.requests) - 1, "refused", True)

    def add_step(
        self,
        plan: StepPlan,
        result: StepResult,
        occupancy: Occupancy,
        *,
        planned: float = nan,
    ) -> None:
        """Note a step that was committed, and the pool after it. `planned`: when it was planned."""
        prefill_tokens = plan.num_tokens - plan.num_decodes  # a decode is one position
        total, held, cached, stored, waiting, running = occupancy
        self.steps.append(
            plan.step, result.t_start, result.t_end, planned,
            plan.num_decodes, prefill_tokens, plan.budget,
            total, held, cached, stored, waiting, running,
        )  # fmt: skip
        if plan.items:
            self._add_items(plan)

    def add_tokens(self, numbers: Sequence[int], step: int, time: float) -> None:
        """Note a token for each request in `numbers`, handed over at `time` by `step`."""
        count = len(numbers)
        self.tokens.extend(
            array("i", numbers), array("i", (step,)) * count, array("d", (time,)) * count
        )

    def add_event(self, request: Request, kind: Enum, time: float) -> None:
        """Note what the scheduler did. `kind` is an `EventKind` or an enum with its names.

        Admitting a preempted request is written as RESUMED. FINISHED copies why it ended.
        """
        event = EventKind[kind.name]
        row = self._rows[request.number]
        if event is EventKind.ADMITTED:
            event = self._admit(request, row, time)
        elif event is EventKind.PREEMPTED:
            self._preempted.add(request.number)
        elif event is EventKind.FINISHED:
            self._preempted.discard(request.number)
            reason = request.finish_reason.value if request.finish_reason else ""
            self._end(row, time, reason, request.error or "")
        self.events.append(request.number, event.value, time)

    @property
    def num_rejected(self) -> int:
        """How many requests were refused."""
        return int(self.requests.column("refused").sum())

    @property
    def num_bytes(self) -> int:
        """Bytes that the numeric columns of all tables take."""
        return sum(table.num_bytes for table in self._tables().values())

    def row_of(self, number: int) -> int:
        """The row of a request in `requests`. Raises `KeyError` for one that was never added."""
        return self._rows[number]

    def to_json(self) -> str:
        """The whole trace in one line of JSON; numbers survive exactly."""
        return json_format.write(self.source, self.page_size, self._tables())

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """The trace that `to_json` wrote. Raises `ValueError` in a sentence when it is not one."""
        data = json_format.read(text)
        trace = cls(str(data["source"]), page_size=int(data["page_size"]))
        json_format.fill(trace._tables(), data)
        numbers = trace.requests.column("number").tolist()
        trace._rows = {number: row for row, number in enumerate(numbers) if number >= 0}
        return trace

    def to_perfetto(self) -> str:
        """The trace for ui.perfetto.dev or chrome://tracing, as JSON trace events."""
        return to_perfetto(self)

    def _tables(self) -> dict[str, Table[Any]]:
        return {
            "steps": self.steps,
            "items": self.items,
            "requests": self.requests,
            "tokens": self.tokens,
            "events": self.events,
        }

    def _add_items(self, plan: StepPlan) -> None:
        """One transposition and typed bulk copies: the cost of this is paid for every token."""
        numbers, _, starts, stops, samples, _ = zip(*plan.items, strict=True)
        self.items.extend(
            array("i", (plan.step,)) * len(plan.items),
            array("i", numbers),
            array("i", starts),
            array("i", stops),
            array("b", samples),
        )

    def _append_request(self, request: Request, number: int, sent: float, group: str) -> None:
        self.requests.append(
            number, request.id, request.client, group,
            request.arrival, sent, request.num_prompt_tokens, request.num_cached,
            request.priority, nan, nan, "", "", False,
        )  # fmt: skip

    def _admit(self, request: Request, row: int, time: float) -> EventKind:
        if request.number in self._preempted:
            self._preempted.remove(request.number)
            return EventKind.RESUMED
        self.requests.set(row, "first_scheduled", time)
        self.requests.set(row, "cached_tokens", request.num_cached)
        return EventKind.ADMITTED

    def _end(self, row: int, time: float, reason: str, error: str) -> None:
        self.requests.set(row, "finished", time)
        self.requests.set(row, "reason", reason)
        self.requests.set(row, "error", error)
