"""The definitions of the serving metrics, against values worked out by hand."""

from __future__ import annotations

from dataclasses import asdict
from math import isclose, isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_traces import Ask, Engine, chunked_trace, eventful_trace, frozen_trace

from minicache.metrics import (
    Outcome,
    PromptClass,
    Slo,
    Window,
    distribution,
    jain_index,
    largest_service_gap,
    measure,
    pool_use,
    prompt_class,
    served_tokens,
    steady,
    summarize,
    work,
    worst_gap,
)
from minicache.plan import PlanItem, StepPlan, StepResult
from minicache.request import FinishReason, Request
from minicache.trace import EventKind, Occupancy, Trace, phases

EMPTY_POOL = Occupancy(100, 0, 0, 0, 0, 0)


class Writer:
    """Writes a trace by hand: `(request, events, tokens)` with the times we choose."""

    def __init__(self) -> None:
        self.trace = Trace("by hand")
        self.live: dict[str, Request] = {}

    def add(
        self, id: str, prompt: int = 4, *, arrival: float = 0.0, sent: float | None = None,
        client: str = "", cached: int = 0,
    ) -> Request:  # fmt: skip
        request = Request(id, [1] * prompt, client=client, arrival=arrival)
        request.number, request.num_cached = len(self.live), cached
        self.live[id] = request
        self.trace.add_request(request, arrival if sent is None else sent)
        return request

    def event(self, id: str, kind: EventKind, time: float) -> None:
        self.trace.add_event(self.live[id], kind, time)

    def end(self, id: str, time: float, reason: FinishReason = FinishReason.LENGTH) -> None:
        self.live[id].finish_reason = reason
        self.event(id, EventKind.FINISHED, time)

    def tokens(self, id: str, *times: float) -> None:
        for time in times:
            self.trace.add_tokens([self.live[id].number], 0, time)

    def step(
        self, start: float, stop: float, parts: dict[str, tuple[int, int]],
        pool: Occupancy = EMPTY_POOL,
    ) -> None:  # fmt: skip
        items = [
            PlanItem(self.live[id].number, 0, a, b, False, [0] * (b - a))
            for id, (a, b) in parts.items()
        ]
        total = sum(item.stop - item.start for item in items)
        decodes = sum(item.stop - item.start == 1 for item in items)
        index = len(self.trace.steps)
        plan = StepPlan(index, items, decodes, total, 512, [], [])
        self.trace.add_step(plan, StepResult(index, [], start, stop, {}, {}), pool)


def simple(id: str, arrival: float, *tokens: float, admitted: float, client: str = "") -> Writer:
    writer = Writer()
    writer.add(id, arrival=arrival, client=client)
    writer.event(id, EventKind.ADMITTED, admitted)
    writer.tokens(id, *tokens)
    writer.end(id, tokens[-1])
    return writer


def test_one_request_by_hand() -> None:
    writer = simple("a", 1.0, 3.0, 3.5, 5.0, admitted=1.75)
    (request,) = measure(writer.trace)
    assert request.ttft_s == 2.0 and request.queue_s == 0.75 and request.prefill_s == 1.25
    assert request.decode_s == 2.0 and request.preempted_s == 0.0 and request.e2e_s == 4.0
    assert request.tpot_s == 1.0 and request.worst_gap_s == 1.5
    assert request.outcome is Outcome.COMPLETED and request.output_tokens == 3
    assert request.total_wait_s == 0.75


def test_first_wait_and_total_wait_under_preemption() -> None:
    """Preempted before the first token, and again after it."""
    writer = Writer()
    writer.add("a", arrival=0.0)
    writer.event("a", EventKind.ADMITTED, 1.0)
    writer.event("a", EventKind.PREEMPTED, 1.5)
    writer.event("a", EventKind.ADMITTED, 3.5)
    writer.tokens("a", 4.0, 4.25)
    writer.event("a", EventKind.PREEMPTED, 4.5)
    writer.event("a", EventKind.ADMITTED, 9.5)
    writer.tokens("a", 10.0)
    writer.end("a", 10.0)
    (request,) = measure(writer.trace)
    assert request.queue_s == 1.0  # the first wait ends at the first admission, not at the latest
    assert request.preempted_before_first_s == 2.0 and request.preempted_s == 7.0
    assert request.total_wait_s == 8.0
    assert request.prefill_s == 1.0 and request.decode_s == 1.0
    assert request.ttft_s == 4.0 == 1.0 + 1.0 + 2.0
    assert request.e2e_s == 10.0 == 1.0 + 1.0 + 1.0 + 7.0
    assert request.num_preemptions == 2 and request.worst_gap_s == 5.75


def test_planned_and_real_send_time_are_both_kept() -> None:
    """Waiting in front of the engine must not vanish from the first token's time."""
    writer = Writer()
    writer.add("a", arrival=0.0, sent=1.5)
    writer.event("a", EventKind.ADMITTED, 1.5)
    writer.tokens("a", 2.0)
    writer.end("a", 2.0)
    (request,) = measure(writer.trace)
    assert (request.ttft_s, request.ttft_from_sent_s) == (2.0, 0.5)


def test_one_token_has_no_tpot_and_is_counted() -> None:
    writer = simple("a", 0.0, 1.0, admitted=0.5)
    summary = summarize(writer.trace)
    assert (summary.tpot_s.count, summary.tpot_s.undefined) == (0, 1)
    assert (summary.worst_gap_s.undefined, summary.itl_s.undefined) == (1, 1)
    assert summary.tpot_s.p99 is None and summary.e2e_s.max == 1.0


def test_an_empty_stream_is_failed_and_breaks_nothing() -> None:
    writer = Writer()
    writer.add("empty")
    writer.event("empty", EventKind.ADMITTED, 0.5)
    writer.end("empty", 1.0, FinishReason.STOP)
    summary = summarize(writer.trace, Slo(ttft_s=9.0))
    assert summary.counts.failed == 1 and summary.counts.completed == 0
    assert summary.good == 0 and summary.first_token_all.ttft_s.count == 0


def test_pooled_gaps_and_means_per_request_have_their_own_names() -> None:
    """One long and one short output: pooled gaps and means a request must not agree."""
    writer = Writer()
    for id, times in {"long": [1.0, 2.0, 3.0, 4.0, 5.0], "short": [1.0, 4.0]}.items():
        writer.add(id)
        writer.event(id, EventKind.ADMITTED, 0.0)
        writer.tokens(id, *times)
        writer.end(id, times[-1])
    summary = summarize(writer.trace)
    assert summary.itl_s.count == 5 and summary.itl_s.mean == (4 * 1.0 + 3.0) / 5
    assert summary.tpot_s.count == 2 and summary.tpot_s.mean == (1.0 + 3.0) / 2
    assert summary.worst_gap_s.max == 3.0


def test_first_token_is_reported_by_class() -> None:
    writer = Writer()
    for prompt, first in ((256, 1.0), (257, 2.0), (4096, 3.0), (4097, 4.0)):
        id = str(prompt)
        writer.add(id, prompt)
        writer.event(id, EventKind.ADMITTED, 0.5)
        writer.tokens(id, first)
        writer.end(id, first)
    summary = summarize(writer.trace)
    by_class = {kind: part.ttft_s.max for kind, part in summary.first_token.items()}
    assert by_class == {PromptClass.SHORT: 1.0, PromptClass.TYPICAL: 3.0, PromptClass.LONG: 4.0}
    typical = summary.first_token[PromptClass.TYPICAL]
    assert (
        typical.ttft_s.count == 2 and typical.queue_s.mean == 0.5 and typical.prefill_s.mean == 2.0
    )
    assert summary.first_token_all.ttft_s.count == 4


@pytest.mark.parametrize(("tokens", "kind"), [(1, "short"), (256, "short"), (4096, "typical")])
def test_prompt_class(tokens: int, kind: str) -> None:
    assert prompt_class(tokens).value == kind


def test_percentiles_are_linear() -> None:
    values = [1.0, 2.0, 4.0, None]
    found = distribution(values)
    assert (found.count, found.undefined, found.p50, found.max) == (3, 1, 2.0, 4.0)
    assert found.p90 == pytest.approx(2.0 + 0.8 * 2.0) and found.mean == pytest.approx(7 / 3)
    assert distribution([]).p50 is None


def test_denominators_are_counted_and_said() -> None:
    summary = summarize(eventful_trace())
    counts = summary.counts
    assert (counts.completed, counts.cancelled, counts.rejected, counts.failed) == (4, 2, 1, 1)
    assert str(counts) == "4 completed, 2 cancelled, 1 rejected, 1 failed"
    unfinished = summarize(Engine([Ask("a", 0.0, 4000, 9)], budget=512).run(max_steps=3)).counts
    assert str(unfinished) == "0 completed, 0 cancelled, 0 rejected, 0 failed, 1 unfinished"


def test_kv_capacity_is_failed() -> None:
    writer = simple("a", 0.0, 1.0, 2.0, admitted=0.5)
    writer.live["a"].finish_reason = FinishReason.KV_CAPACITY
    writer.event("a", EventKind.FINISHED, 2.0)
    assert summarize(writer.trace).counts.failed == 1


def test_goodput_wants_every_limit_and_every_metric() -> None:
    writer = Writer()
    for id, times in {
        "good": [1.0, 1.5],
        "late": [3.0, 3.5],
        "gap": [1.0, 4.0],
        "one": [1.0],
    }.items():
        writer.add(id)
        writer.event(id, EventKind.ADMITTED, 0.0)
        writer.tokens(id, *times)
        writer.end(id, times[-1])
    summary = summarize(writer.trace, Slo(ttft_s=2.0, worst_gap_s=1.0))
    assert summary.good == 1  # 'one' has no gap: a missing metric is not good
    assert summary.goodput_per_s == 1 / 4.0 and summary.requests_per_s == 4 / 4.0
    assert summarize(writer.trace, Slo(ttft_s=2.0)).good == 3
    assert summarize(writer.trace).good is None and summarize(writer.trace).goodput_per_s is None


def test_a_long_prompt_may_have_its_own_limit() -> None:
    writer = Writer()
    writer.add("long", 5000)
    writer.event("long", EventKind.ADMITTED, 0.0)
    writer.tokens("long", 5.0)
    writer.end("long", 5.0)
    assert summarize(writer.trace, Slo(ttft_s=1.0)).good == 0
    assert summarize(writer.trace, Slo(ttft_s=1.0, ttft_long_s=6.0)).good == 1


def test_an_impossible_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="worst_gap_s is 0, but a limit must be above 0"):
        Slo(worst_gap_s=0)


def test_jain_index() -> None:
    assert jain_index({"a": 5, "b": 5}) == 1.0
    assert jain_index({"a": 5, "b": 0}) == 0.5
    assert jain_index({"a": 1, "b": 3}) == pytest.approx(16 / 20)
    assert jain_index({}) is None and jain_index({"a": 0}) is None


def fairness_trace() -> Trace:
    """Clients a and b both wait over steps 1 to 3; a is served 30 more than b meanwhile."""
    writer = Writer()
    for id, client in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")):
        writer.add(id, 100, client=client)
    writer.event("a1", EventKind.ADMITTED, 0.5)
    writer.event("b1", EventKind.ADMITTED, 0.5)
    writer.step(1.0, 2.0, {"a1": (0, 20), "b1": (0, 10)})
    writer.step(2.0, 3.0, {"a1": (20, 50), "b1": (10, 30)})
    writer.step(3.0, 4.0, {"a1": (50, 70), "b1": (30, 40)})
    writer.event("a2", EventKind.ADMITTED, 4.0)  # from here on only b waits
    writer.step(4.0, 5.0, {"a2": (0, 100)})
    writer.end("a1", 5.0)
    return writer.trace


def test_largest_service_gap_counts_only_while_both_wait() -> None:
    trace = fairness_trace()
    everything = Window(0.0, 9.0)
    assert served_tokens(trace, everything) == {"a": 170, "b": 40}
    assert largest_service_gap(trace, everything) == 30.0  # 10 + 10 + 10; the 100 do not count
    assert largest_service_gap(trace, Window(2.0, 9.0)) == 20.0
    assert largest_service_gap(trace, Window(4.0, 9.0)) is None


def test_service_counts_nothing_twice() -> None:
    """A recompute after a preemption and a cached prefix are no service."""
    writer = Writer()
    writer.add("a", 100, client="a", cached=32)
    writer.add("b", 10, client="b")
    writer.step(0.0, 1.0, {"a": (32, 60), "b": (0, 10)})
    writer.step(1.0, 2.0, {"a": (0, 50)})
    writer.step(2.0, 3.0, {"a": (50, 100)})
    assert served_tokens(writer.trace, Window(0.0, 3.0)) == {"a": 68, "b": 10}


def test_recompute_ratio_and_hit_rate() -> None:
    writer = Writer()
    writer.add("a", 100, cached=20)
    writer.event("a", EventKind.ADMITTED, 0.0)
    writer.step(0.0, 1.0, {"a": (20, 70)})
    assert work(writer.trace, Window(0.0, 9.0)).recompute_ratio == 1.0
    writer.event("a", EventKind.PREEMPTED, 1.0)
    writer.event("a", EventKind.ADMITTED, 2.0)
    writer.step(2.0, 3.0, {"a": (20, 100)})
    writer.step(3.0, 4.0, {"a": (100, 101)})
    found = work(writer.trace, Window(0.0, 9.0))
    assert found.recompute_ratio == (80 + 50) / 80  # decodes are neither needed nor computed again
    assert found.prefix_hit_rate == 0.2 and found.preemptions == 1
    assert (found.steps, found.prefill_tokens) == (3, 130)
    assert work(writer.trace, Window(1.5, 9.0)).preemptions == 0
    assert work(Trace(""), Window(0.0, 1.0)).recompute_ratio is None


def test_occupancy_is_weighted_by_time() -> None:
    writer = Writer()
    writer.add("a")
    writer.step(0.0, 1.0, {"a": (0, 2)}, Occupancy(100, 10, 30, 150, 2, 1))
    writer.step(3.0, 4.0, {"a": (2, 4)}, Occupancy(100, 50, 0, 400, 0, 1))
    use = pool_use(writer.trace, Window(0.0, 4.0))
    assert use.held_share.mean == pytest.approx((3 * 0.10 + 1 * 0.50) / 4)
    assert use.held_share.max == 0.5 and use.cached_share.max == 0.3
    assert use.stored_share.mean == pytest.approx((3 * 150 + 400) / 4 / 1600)
    assert use.waiting.mean == 1.5 and use.running.max == 1
    late = pool_use(writer.trace, Window(3.5, 3.75))
    assert late.held_share.mean == 0.5 and late.cached_share.max == 0.0
    assert pool_use(writer.trace, Window(1.0, 1.0)).held_share.mean is None


def test_window_wants_both_ends_inside_and_counts_the_rest() -> None:
    """A warm-up longer than its window must not leak into the measurement."""
    writer = Writer()
    for id, arrival, stop in (("warm", 0.0, 6.0), ("in", 5.5, 7.0), ("late", 8.0, 11.0)):
        writer.add(id, arrival=arrival)
        writer.event(id, EventKind.ADMITTED, arrival)
        writer.tokens(id, stop - 0.5, stop)
        writer.end(id, stop)
    window = steady(writer.trace, warmup_s=5.0, cooldown_s=1.0)
    assert (window.start_s, window.end_s) == (5.0, 10.0)
    summary = summarize(writer.trace, window=window)
    assert summary.counts.completed == 1 and summary.counts.excluded == 2
    assert summary.e2e_s.max == 1.5
    assert summary.output_tokens_per_s == 4 / 5.0  # tokens count by their own time
    with pytest.raises(ValueError, match="before it starts"):
        steady(writer.trace, warmup_s=50.0, cooldown_s=1.0)


def test_worst_gap_of_some_requests_within_a_window() -> None:
    writer = Writer()
    for id, times in {"a": [1.0, 2.0, 6.0], "b": [1.0, 9.0], "one": [1.0]}.items():
        writer.add(id)
        writer.tokens(id, *times)
    assert worst_gap(writer.trace) == 8.0
    assert worst_gap(writer.trace, [0]) == 4.0
    assert worst_gap(writer.trace, [0, 1], Window(5.0, 20.0)) == 4.0
    assert worst_gap(writer.trace, [2]) is None and worst_gap(Trace("")) is None


def test_the_freeze_is_in_the_worst_gap_and_not_in_p50_or_p99() -> None:
    frozen, chunked = summarize(frozen_trace()), summarize(chunked_trace())
    assert frozen.itl_s.p99 < 0.01 < 3.0 < frozen.worst_gap_s.max
    assert frozen.worst_gap_s.max > 15 * chunked.worst_gap_s.max
    assert frozen.counts.completed == chunked.counts.completed == 4


def test_prefill_first_stalls_a_decode_for_the_sum_of_the_prefills() -> None:
    asks = [Ask("chat", 0.0, 500, 60), *(Ask(f"p{i}", 0.05, 8000, 1) for i in range(10))]
    trace = Engine(asks, budget=None).run()
    long_steps = [step.t_end - step.t_start for step in trace.steps if step.prefill_tokens == 8000]
    assert len(long_steps) == 10
    gap = measure(trace)[0].worst_gap_s
    decode = 0.006
    assert sum(long_steps) <= gap <= sum(long_steps) + 2 * decode


def test_a_token_of_an_unknown_request_is_named_as_a_fault() -> None:
    trace = Trace("")
    trace.add_tokens([7], 0, 1.0)
    with pytest.raises(KeyError, match="never added"):
        measure(trace)


def no_nan(value: object) -> bool:
    if isinstance(value, dict):
        return all(no_nan(part) for part in value.values())
    return not (isinstance(value, float) and (isnan(value) or np.isinf(value)))


@pytest.mark.parametrize("make", [lambda: Trace(""), frozen_trace, eventful_trace])
def test_nothing_is_nan(make) -> None:
    assert no_nan(asdict(summarize(make(), Slo(ttft_s=1.0, e2e_s=2.0))))


def test_a_trace_of_refusals_only() -> None:
    trace = Trace("")
    trace.add_refused(Request("a", [1] * 9, arrival=2.0), 2.0, "Too long.")
    summary = summarize(trace, Slo(e2e_s=1.0))
    assert summary.counts.rejected == 1 and summary.output_tokens_per_s is None
    assert no_nan(asdict(summary))


asks = st.lists(
    st.builds(
        Ask,
        id=st.just("r"),
        arrival=st.floats(0, 0.2),
        prompt=st.integers(1, 500),
        output=st.integers(1, 12),
        client=st.sampled_from(["a", "b", "c"]),
        cancel=st.sampled_from([float("inf"), 0.02, 0.1]),
        error_after=st.sampled_from([None, None, 2]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(asks, st.sampled_from([None, 16, 128]), st.integers(34, 90))
def test_the_parts_of_a_life_add_up(asks: list[Ask], budget: int | None, pages: int) -> None:
    """len(ITL) = tokens - 1; queue + prefill + decode + preempted = E2E; every request counted."""
    trace = Engine(asks, budget=budget, pages=pages).run()
    requests = measure(trace)
    for request, life in zip(requests, phases(trace), strict=True):
        if request.e2e_s is not None:
            parts = (request.queue_s, request.prefill_s, request.decode_s, request.preempted_s)
            assert isclose(sum(parts), request.e2e_s, rel_tol=1e-12, abs_tol=1e-12)
            assert min(parts) >= -1e-12
            first = request.queue_s + request.prefill_s + request.preempted_before_first_s
            assert isclose(first, request.ttft_s, rel_tol=1e-12, abs_tol=1e-12)
        assert bool(life) == (request.outcome is not Outcome.REJECTED)
    summary = summarize(trace)
    counts = summary.counts
    assert counts.excluded == 0
    assert len(requests) == sum(v for k, v in asdict(counts).items() if k != "excluded")
    done = [request for request in requests if request.outcome is Outcome.COMPLETED]
    assert summary.itl_s.count == sum(request.output_tokens - 1 for request in done)
    assert no_nan(asdict(summary))
    served = served_tokens(trace, summary.window)
    reached = [
        max((i.stop for i in trace.items if i.number == r.number), default=r.cached_tokens)
        - r.cached_tokens
        for r in trace.requests
    ]
    assert sum(served.values()) == sum(reached)
