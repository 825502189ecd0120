"""The real loop writes traces that metrics, pictures and exports can read, whatever happens."""

from __future__ import annotations

from math import isclose

import pytest
import svg_checks
from fake_executor import FakeExecutor
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trace import check_perfetto, same

from minicache.core import EngineCore
from minicache.metrics import Outcome, measure, summarize
from minicache.page_pool import PagePool
from minicache.policy import BATCHING, Fcfs
from minicache.request import Request, RequestRefused, SamplingParams
from minicache.scheduler import Scheduler, SchedulerConfig
from minicache.trace import EventKind, PhaseKind, Trace, phases
from minicache.viz.timeline import state, svg

PAGE = 4


def make_core(
    max_in_flight: int, *, pages: int = 24, budget: int = 16, rows: int = 4,
    batching: str = "mixed", chunked: bool = True,
) -> EngineCore:  # fmt: skip
    pool = PagePool(pages, PAGE)
    config = SchedulerConfig(rows, budget, 400, max_in_flight, chunked_prefill=chunked)
    executor = FakeExecutor(
        pages, PAGE, rows, max_in_flight=max_in_flight,
        seconds=lambda plan: 0.004 + 0.001 * plan.num_tokens,
    )  # fmt: skip
    scheduler = Scheduler(pool, config, BATCHING[batching](), Fcfs())
    return EngineCore(
        scheduler, pool, executor, Trace("fake", page_size=PAGE), lambda: executor.time
    )


def serve(core: EngineCore, asks: list[tuple[int, int, int]], cancel_at: int = -1) -> Trace:
    """Submit `(turn, prompt, outputs)` when their turn comes; cancel the first one at a turn."""
    turn = 0
    while asks or core.has_work:
        for ask in [ask for ask in asks if ask[0] <= turn]:
            asks.remove(ask)
            submit(core, f"r{len(core.trace.requests)}", ask[1], ask[2])
        if turn == cancel_at:
            core.cancel("r0")
        core.step()
        turn += 1
    return core.trace


def submit(core: EngineCore, id: str, prompt: int, outputs: int) -> None:
    params = SamplingParams(max_tokens=outputs, ignore_eos=True)
    tokens = [(7 * i + prompt) % 90 + 100 for i in range(prompt)]
    request = Request(id, tokens, params, client=id[-1], arrival=core.clock())
    try:
        core.submit(request)
    except RequestRefused:
        assert core.trace.requests[-1].refused


def check(trace: Trace) -> None:
    assert same(trace, Trace.from_json(trace.to_json()))
    check_perfetto(trace)
    for request, life in zip(measure(trace), phases(trace), strict=True):
        if request.outcome is Outcome.REJECTED:
            continue
        assert all(a.stop == b.start for a, b in zip(life, life[1:], strict=False))
        assert all(phase.start <= phase.stop for phase in life)
        if request.e2e_s is not None:
            parts = (request.queue_s, request.prefill_s, request.decode_s, request.preempted_s)
            assert isclose(sum(parts), request.e2e_s, abs_tol=1e-9) and min(parts) >= -1e-9
    assert summarize(trace).counts.unfinished == 0
    for step in trace.steps:
        assert 0 <= step.pages_held + step.pages_cached <= step.pages_total
        assert step.num_decodes + step.prefill_tokens <= step.budget
    svg_checks.check(svg(state(trace, step=trace.steps[-1].step if len(trace.steps) else None)))


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_preemption_by_the_real_scheduler(max_in_flight: int) -> None:
    core = make_core(max_in_flight, pages=14)
    trace = serve(core, [(0, 12, 20), (0, 12, 20), (1, 12, 20)])
    kinds = [event.kind for event in trace.events]
    assert EventKind.PREEMPTED in kinds and EventKind.RESUMED in kinds
    assert {phase.kind for life in phases(trace) for phase in life} == set(PhaseKind)
    assert summarize(trace).work.preemptions == kinds.count(EventKind.PREEMPTED)
    assert summarize(trace).work.recompute_ratio > 1.0
    check(trace)


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_the_prefix_cache_shows(max_in_flight: int) -> None:
    trace = serve(make_core(max_in_flight), [(0, 17, 3), (12, 17, 3)])
    first, second = trace.requests
    assert (first.cached_tokens, second.cached_tokens) == (0, 16)
    assert summarize(trace).work.prefix_hit_rate == 16 / 34
    check(trace)


def test_a_refusal_and_a_cancel_are_counted() -> None:
    trace = serve(make_core(2), [(0, 30, 40), (0, 500, 1), (1, 9, 4)], cancel_at=6)
    counts = summarize(trace).counts
    assert (counts.completed, counts.cancelled, counts.rejected) == (1, 1, 1)
    check(trace)


def test_a_lifted_limit_is_named() -> None:
    trace = serve(make_core(1, chunked=False, pages=60), [(0, 5, 30), (3, 120, 5)])
    timeline = state(trace)
    assert timeline.panels[0].budget == 16
    assert max(bar.prefill for bar in timeline.panels[0].bars) == 120
    assert "most 121, limit 16 (dashed) lifted for a whole prompt" in svg(timeline)
    check(trace)


def test_a_step_that_outlives_its_request_is_cut_at_its_end() -> None:
    trace = serve(make_core(2, pages=8), [(0, 17, 1)], cancel_at=1)
    (lane,) = state(trace).panels[0].lanes
    assert lane.remark == "cancelled" and all(chunk.stop <= lane.end for chunk in lane.chunks)
    assert trace.steps[-1].t_end > lane.end
    check(trace)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    asks=st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 60), st.integers(1, 16)), max_size=7
    ),
    max_in_flight=st.integers(1, 2),
    batching=st.sampled_from(sorted(BATCHING)),
    pages=st.integers(8, 30),
    chunked=st.booleans(),
    cancel_at=st.integers(-1, 10),
)
def test_any_run_can_be_read(asks, max_in_flight, batching, pages, chunked, cancel_at) -> None:
    core = make_core(max_in_flight, pages=pages, batching=batching, chunked=chunked)
    check(serve(core, asks, cancel_at))
