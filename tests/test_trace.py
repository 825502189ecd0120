"""The trace: columns, sizes, JSON, the Perfetto export, phases."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_traces import Ask, Engine, chunked_trace, eventful_trace, frozen_trace

from minicache.plan import PlanItem, StepPlan, StepResult
from minicache.request import FinishReason, Request
from minicache.trace import EventKind, Occupancy, PhaseKind, Trace, end_of, phases


@pytest.fixture(scope="module")
def eventful() -> Trace:
    return eventful_trace()


def decode_step(running: int) -> tuple[StepPlan, StepResult, Occupancy]:
    items = [PlanItem(i, i, 5000 + i, 5001 + i, True, [1]) for i in range(running)]
    plan = StepPlan(3, items, running, running, 512, [], [])
    return plan, StepResult(3, [1] * running, 0.5, 1.5, {}, {}), Occupancy(9, 8, 1, 7, 6, running)


def test_rows_are_views() -> None:
    trace = Trace("here")
    request = Request("a", [1, 2, 3], client="c", arrival=1.0, priority=2)
    request.number = 41
    trace.add_request(request, 1.5, group="chat")
    plan = StepPlan(0, [PlanItem(41, 0, 0, 3, True, [1, 2, 3])], 0, 3, 64, [], [])
    trace.add_step(plan, StepResult(0, [9], 2.0, 2.5, {}, {}), Occupancy(10, 1, 2, 3, 0, 1))
    trace.add_tokens([41], 0, 2.5)
    request.num_cached = 0
    trace.add_event(request, EventKind.ADMITTED, 1.75)
    before = trace.requests[0]
    assert (before.number, before.id, before.client, before.group) == (41, "a", "c", "chat")
    assert (before.arrival, before.sent, before.first_scheduled) == (1.0, 1.5, 1.75)
    assert before.finished is None and before.reason is None and before.error is None
    request.finish_reason = FinishReason.LENGTH
    trace.add_event(request, EventKind.FINISHED, 3.0)
    after = trace.requests[0]
    assert after.finished == 3.0 and after.reason is FinishReason.LENGTH
    step = trace.steps[0]
    assert (step.prefill_tokens, step.num_decodes, step.budget) == (3, 0, 64)
    assert (step.t_start, step.t_end, step.t_planned) == (2.0, 2.5, None)
    assert (step.pages_total, step.pages_held, step.pages_cached, step.stored_tokens) == (
        10,
        1,
        2,
        3,
    )
    assert trace.items[0] == (0, 41, 0, 3, True) and trace.tokens[:] == [(41, 0, 2.5)]
    assert [event.kind for event in trace.events] == [EventKind.ADMITTED, EventKind.FINISHED]


def test_planned_time_and_kind_by_name() -> None:
    from enum import Enum

    class Other(Enum):
        ADMITTED = 1

    trace = Trace("here")
    request = Request("a", [1])
    request.number = 0
    trace.add_request(request, 0.0)
    trace.add_event(request, Other.ADMITTED, 0.25)
    trace.add_step(*decode_step(2), planned=0.375)
    assert trace.events[0].kind is EventKind.ADMITTED
    assert trace.steps[0].t_planned == 0.375


def test_admitted_after_preempted_is_resumed(eventful: Trace) -> None:
    kinds = Counter(event.kind for event in eventful.events)
    assert kinds[EventKind.PREEMPTED] > 0
    last: dict[int, EventKind] = {}
    for event in eventful.events:
        was_preempted = last.get(event.number) is EventKind.PREEMPTED
        assert (event.kind is EventKind.RESUMED) <= was_preempted
        assert not (event.kind is EventKind.ADMITTED and was_preempted)
        last[event.number] = event.kind
    assert set(last.values()) == {EventKind.FINISHED}


def test_refused_requests_have_no_number(eventful: Trace) -> None:
    refused = [request for request in eventful.requests if request.refused]
    assert [request.id for request in refused] == ["eta"] and eventful.num_rejected == 1
    assert refused[0].number is None and refused[0].reason is None
    assert refused[0].error == "The prompt has 90000 tokens."


def test_cached_tokens_come_from_the_first_admission(eventful: Trace) -> None:
    by_id = {request.id: request for request in eventful.requests}
    assert by_id["gamma"].cached_tokens == 512 and by_id["alpha"].cached_tokens == 0


@pytest.mark.parametrize(("running", "most_mb"), [(8, 200), (250, 160)])
def test_four_million_tokens_fit_in_200_mb(running: int, most_mb: int) -> None:
    trace = Trace("arithmetic")
    plan, result, occupancy = decode_step(running)
    numbers = [item.number for item in plan.items]
    for _ in range(4_000_000 // running):
        trace.add_step(plan, result, occupancy)
        trace.add_tokens(numbers, 3, 1.5)
    assert len(trace.tokens) == 4_000_000
    per_token = 16 + 17 + 64 / running
    assert 4_000_000 * per_token <= trace.num_bytes <= most_mb * 1e6


def test_recording_is_linear_and_cheap() -> None:
    """Not a benchmark: far above what it costs (0.2 µs a token), far below a quadratic blunder."""
    trace = Trace("cost")
    step, numbers = decode_step(256), list(range(256))
    start = time.process_time()
    for _ in range(400):
        trace.add_step(*step)
        trace.add_tokens(numbers, 3, 1.5)
    assert (time.process_time() - start) / (400 * 256) < 3e-6


def test_columns_are_copies() -> None:
    trace = Trace("copies")
    trace.add_tokens([1, 2], 0, 0.5)
    times = trace.tokens.column("time")
    times[:] = 9.0
    trace.add_tokens([3], 1, 0.75)  # a live view would forbid the array to grow
    assert trace.tokens.column("time").tolist() == [0.5, 0.5, 0.75]
    assert trace.tokens.column("number").dtype == "int32"


def same(left: Trace, right: Trace) -> bool:
    names = ("steps", "items", "requests", "tokens", "events")
    return all(list(getattr(left, name)) == list(getattr(right, name)) for name in names)


@pytest.mark.parametrize("make", [eventful_trace, chunked_trace, frozen_trace, lambda: Trace("")])
def test_json_round_trip(make) -> None:
    trace = make()
    text = trace.to_json()
    again = Trace.from_json(text)
    assert same(trace, again) and again.source == trace.source
    assert again.page_size == trace.page_size and again.to_json() == text
    assert "NaN" not in text
    if len(trace.requests):
        number = trace.requests[0].number
        assert again.row_of(number) == trace.row_of(number)


def test_json_round_trip_keeps_every_bit_of_a_time() -> None:
    trace = Trace("bits")
    for value in (0.1 + 0.2, 1e-9, 123456.789012345678):
        trace.add_tokens([0], 0, value)
    again = Trace.from_json(trace.to_json())
    assert again.tokens.column("time").tolist() == trace.tokens.column("time").tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.pop("format"), "This is no trace"),
        (lambda data: data.update(version=99), "version 99"),
        (lambda data: data["tokens"].pop("time"), "'tokens' should have the columns"),
        (lambda data: data["tokens"]["time"].pop(), "2 different lengths"),
        (lambda data: data.pop("events"), "'events' should have the columns"),
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(change, words: str, eventful: Trace) -> None:
    data = json.loads(eventful.to_json())
    change(data)
    with pytest.raises(ValueError, match=words):
        Trace.from_json(json.dumps(data))


def test_a_list_is_no_trace() -> None:
    with pytest.raises(ValueError, match="This is no trace"):
        Trace.from_json("[1]")


def test_phases_join_and_cover_a_life(eventful: Trace) -> None:
    for request, life in zip(eventful.requests, phases(eventful), strict=True):
        if request.refused:
            assert life == []
            continue
        assert life[0].start == request.arrival and life[-1].stop == request.finished
        for left, right in zip(life, life[1:], strict=False):
            assert left.stop == right.start and left.start <= left.stop
        assert life[0].kind is PhaseKind.WAITING
    kinds = {phase.kind for life in phases(eventful) for phase in life}
    assert kinds == set(PhaseKind)


def test_phases_of_the_unfinished_end_with_the_trace() -> None:
    trace = Engine([Ask("a", 0.0, 4000, 50), Ask("b", 0.001, 4000, 50)], budget=512).run(
        max_steps=5
    )
    assert all(life[-1].stop == end_of(trace) for life in phases(trace))
    assert all(request.finished is None for request in trace.requests)


def nested(slices: list[tuple[int, int]]) -> bool:
    """Whether slices `(start, stop)` on one track nest: none crosses the end of one around it."""
    stack: list[int] = []
    for start, stop in sorted(slices, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and stop > stack[-1]:
            return False
        stack.append(stop)
    return True


def test_the_nesting_check_sees_a_crossing() -> None:
    assert nested([(0, 10), (2, 5), (5, 10), (3, 4)])
    assert not nested([(0, 10), (5, 12)])


def check_perfetto(trace: Trace) -> dict[str, int]:
    """Structure of the export; returns how many events of each phase letter it has."""
    data = json.loads(trace.to_perfetto())
    assert data["otherData"]["source"] == trace.source
    events = data["traceEvents"]
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    for event in events:
        assert event["ph"] in "MXCi"
        if event["ph"] == "M":
            continue
        assert isinstance(event["ts"], int)
        if event["ph"] == "X":
            assert isinstance(event["dur"], int) and event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "C":
            assert all(value >= 0 for value in event["args"].values())
    assert set(tracks) <= named
    assert all(nested(slices) for slices in tracks.values())
    return Counter(event["ph"] for event in events)


@pytest.mark.parametrize("make", [eventful_trace, chunked_trace, frozen_trace, lambda: Trace("")])
def test_perfetto_tracks_nest(make) -> None:
    trace = make()
    counts = check_perfetto(trace)
    assert counts["C"] == 2 * len(trace.steps)
    sampled = {token.number for token in trace.tokens}
    assert counts["i"] == len(trace.requests) + len(sampled)


def test_perfetto_reopens_a_preempted_request(eventful: Trace) -> None:
    events = json.loads(eventful.to_perfetto())["traceEvents"]
    preempted = [event for event in events if event["name"] == "preempted"]
    assert len(preempted) == sum(e.kind is EventKind.PREEMPTED for e in eventful.events)
    for event in preempted:
        track = [e for e in events if e.get("tid") == event["tid"] and e["pid"] == event["pid"]]
        end = event["ts"] + event["dur"]
        starts = [e["ts"] for e in track if e["name"] == "running"]
        ends = [e["ts"] + e["dur"] for e in track if e["name"] == "running"]
        assert event["ts"] in ends and end in starts


def test_perfetto_cuts_a_step_that_a_cancel_overtakes() -> None:
    """With steps in flight, a request may be gone before the step that names it has ended."""
    trace = Trace("overlap")
    request = Request("a", [1] * 8)
    request.number = 0
    trace.add_request(request, 0.0)
    trace.add_event(request, EventKind.ADMITTED, 0.1)
    for step, (start, stop) in enumerate([(0.1, 1.0), (0.9, 2.0)]):
        plan = StepPlan(
            step, [PlanItem(0, 0, step * 4, step * 4 + 4, False, [1] * 4)], 0, 4, 4, [], []
        )
        trace.add_step(plan, StepResult(step, [], start, stop, {}, {}), Occupancy(9, 1, 0, 4, 0, 1))
    request.finish_reason = FinishReason.CANCELLED
    trace.add_event(request, EventKind.FINISHED, 1.5)
    check_perfetto(trace)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(
        st.builds(
            Ask,
            id=st.text(min_size=1, max_size=5),
            arrival=st.floats(0, 0.5),
            prompt=st.integers(1, 400),
            output=st.integers(1, 8),
            cancel=st.sampled_from([float("inf"), 0.1, 0.3]),
        ),
        max_size=6,
    ),
    st.sampled_from([None, 16, 256]),
    st.integers(30, 60),
)
def test_any_run_survives_json_and_nests(asks: list[Ask], budget: int | None, pages: int) -> None:
    trace = Engine(asks, budget=budget, pages=pages).run()
    assert same(trace, Trace.from_json(trace.to_json()))
    check_perfetto(trace)
    for request, life in zip(trace.requests, phases(trace), strict=True):
        if request.finished is not None and life:
            length = sum(phase.stop - phase.start for phase in life)
            assert isclose(length, request.finished - request.arrival, abs_tol=1e-9)
