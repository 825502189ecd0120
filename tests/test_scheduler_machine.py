"""Any sequence of submits, steps, cancels, preemptions and errors, on tiny pools, for every policy.

After every operation the harness checks accounting, budgets, positions and stall-freedom; at the
end everybody has ended once, nothing is held, and all outputs are those of a run alone.
"""

from __future__ import annotations

from fake_executor import Harness
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minicache.policy import BATCHING, ORDERS, Situation, Work
from minicache.request import FinishReason, RequestRefused, RequestState


class Greedy:
    """A policy of one's own that lets everybody in at once: many prompts are half prefilled."""

    def attempts(self, situation: Situation) -> tuple[Work, ...]:
        return (Work.DECODE | Work.PREFILL | Work.ADMIT_ALL,)


POLICIES = {**BATCHING, "greedy": Greedy}


class SchedulerMachine(RuleBasedStateMachine):
    """The alphabet has two tokens, so that prompts share prefixes and repeat."""

    operations = 0
    preemptions = 0
    hits = 0
    reasons: set[FinishReason] = set()

    @initialize(
        batching=st.sampled_from(sorted(POLICIES)),
        order=st.sampled_from(sorted(ORDERS)),
        max_in_flight=st.integers(1, 2),
        num_pages=st.integers(3, 14),
        page_size=st.sampled_from([1, 2, 4]),
        max_num_seqs=st.integers(1, 5),
        more_budget=st.integers(0, 8),
        chunked_prefill=st.sampled_from([True, True, True, False]),
        prefix_caching=st.sampled_from([True, True, True, False]),
        watermark=st.sampled_from([0.0, 0.0, 0.2]),
        eos_every=st.sampled_from([0, 6]),
        max_model_len=st.sampled_from([1000, 1000, 14]),
    )
    def start(self, batching, order, max_num_seqs, more_budget, **limits):
        self.harness = Harness(
            batching=POLICIES[batching](),
            order=ORDERS[order](),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_seqs + more_budget,
            **limits,
        )

    def _count(self) -> Harness:
        type(self).operations += 1
        return self.harness

    @rule(
        prompt=st.lists(st.integers(0, 1), max_size=14),
        max_tokens=st.integers(1, 12),
        priority=st.integers(0, 2),
    )
    def submit(self, prompt, max_tokens, priority):
        """It is taken, or refused with nothing changed, exactly by its length."""
        harness = self._count()
        before = (harness.pool.states(), harness.scheduler.num_waiting)
        limit = min(harness.max_model_len, harness.num_pages * harness.page_size) - 1
        try:
            harness.submit(prompt, max_tokens, priority=priority)
            assert 1 <= len(prompt) <= limit
        except RequestRefused:
            assert not 1 <= len(prompt) <= limit
            assert before == (harness.pool.states(), harness.scheduler.num_waiting)

    @precondition(lambda self: len(self.harness.in_flight) < self.harness.max_in_flight)
    @rule()
    def schedule(self):
        """Plan a step; when there is none, there is a step to wait for, or nobody."""
        harness = self._count()
        if harness.schedule() is None:
            assert harness.in_flight or not harness.scheduler.has_work

    @precondition(lambda self: self.harness.in_flight)
    @rule()
    def collect(self):
        self._count().update()

    @precondition(lambda self: self.harness.scheduler.has_work)
    @rule(turns=st.integers(1, 4))
    def turn(self, turns):
        """What the engine's loop does."""
        harness = self._count()
        for _ in range(turns):
            harness.step()

    @precondition(lambda self: self.harness.requests)
    @rule(data=st.data())
    def cancel(self, data):
        harness = self._count()
        request = data.draw(st.sampled_from(harness.requests))
        was_open = not request.finished
        assert harness.cancel(request) is was_open
        assert request.finished

    @precondition(lambda self: self.harness.scheduler.num_running)
    @rule(data=st.data())
    def preempt(self, data):
        harness = self._count()
        running = [r for r in harness.requests if r.state is RequestState.RUNNING]
        harness.scheduler.preempt(data.draw(st.sampled_from(running)), harness.now)
        harness._take_events()
        harness.check()

    @precondition(lambda self: self.harness.in_flight)
    @rule(data=st.data())
    def fail(self, data):
        """One request's part of the oldest step fails. It ends, unless that was a life ago."""
        harness = self._count()
        item = data.draw(st.sampled_from(harness.in_flight[0].items))
        request = harness.requests[item.number]
        ends = request.finished or request.row == item.row
        harness.executor.failing[item.number] = "made to fail"
        harness.update()
        assert request.finished is ends

    def teardown(self):
        if not hasattr(self, "harness"):
            return
        self.harness.run()
        requests = self.harness.requests
        type(self).preemptions += sum(request.num_preemptions for request in requests)
        type(self).hits += sum(request.num_cached > 0 for request in requests)
        type(self).reasons |= {request.finish_reason for request in requests}


def test_any_sequence_of_operations():
    """Invariants 1 to 5. The counts say that the rare paths were really walked."""
    machine = SchedulerMachine
    machine.operations = machine.preemptions = machine.hits = 0
    machine.reasons = set()
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=400, stateful_step_count=50, deadline=None, derandomize=True, database=None
        ),
    )
    assert machine.operations >= 10_000
    assert machine.preemptions >= 200 and machine.hits >= 100
    assert machine.reasons == set(FinishReason)
