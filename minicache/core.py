"""The loop that real, fake and simulated engines share: plan, run, commit, write it down.

It knows nothing of torch or text. `LLM` turns it with the real model; the simulator turns the same
loop with a cost model on a virtual clock, so both leave the same trace.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from minicache.page_pool import PagePool
from minicache.plan import StepPlan, StepResult
from minicache.protocols import Executor
from minicache.request import FinishReason, Request, RequestRefused
from minicache.scheduler import EventKind, Scheduler, TokenEvent
from minicache.trace import Occupancy, Trace

log = logging.getLogger(__name__)


class Progress(NamedTuple):
    """What one turn of the loop brought: tokens, then the requests that ended."""

    tokens: list[TokenEvent]
    finished: list[Request]
    result: StepResult | None
    """None when no step was collected in this turn."""


class _Submitted(NamedTuple):
    plan: StepPlan
    planned: float
    result: StepResult | None
    """Known at once only when the step could not be started."""


class EngineCore:
    """Scheduler, executor and trace, turned one step at a time. Not thread-safe."""

    def __init__(
        self,
        scheduler: Scheduler,
        pool: PagePool,
        executor: Executor,
        trace: Trace,
        clock: Callable[[], float],
    ) -> None:
        """`clock()` gives seconds; the executor's stamps are on the same clock."""
        self.scheduler = scheduler
        self.pool = pool
        self.executor = executor
        self.trace = trace
        self.clock = clock
        self._in_flight: deque[_Submitted] = deque()

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs, or a step is still in flight."""
        return self.scheduler.has_work or bool(self._in_flight)

    def submit(self, request: Request) -> None:
        """Queue a request. Raises `RequestRefused`, which only the trace remembers."""
        now = self.clock()
        try:
            self.scheduler.submit(request, now)
        except RequestRefused as error:
            self.trace.add_refused(request, now, str(error))
            raise
        self.trace.add_request(request, now)

    def step(self) -> Progress:
        """Keep the executor's pipeline full, then collect its oldest step and commit it."""
        self._fill()
        if not self._in_flight:
            return Progress([], self._write_events(), None)
        plan, planned, result = self._in_flight.popleft()
        if result is None:
            result = self._collect(plan)
        tokens = self.scheduler.update(plan, result)
        self.trace.add_step(plan, result, self._occupancy(), planned=planned)
        self.trace.add_tokens([event.request.number for event in tokens], plan.step, result.t_end)
        return Progress(tokens, self._write_events(), result)

    def cancel(self, id: str) -> list[Request]:
        """End a request wherever it is. An unknown or ended id is ignored. Returns who ended."""
        self.scheduler.cancel(id, self.clock())
        return self._write_events()

    def finish(self, request: Request, reason: FinishReason) -> list[Request]:
        """End a request for a reason that only its text shows. Returns who ended."""
        self.scheduler.finish(request, reason, self.clock())
        return self._write_events()

    def reset_trace(self) -> None:
        """Start an empty trace. Raises `RuntimeError` while there is work."""
        if self.has_work:
            raise RuntimeError("Requests are still open; finish or cancel them before a new trace.")
        self.trace = Trace(self.trace.source, page_size=self.trace.page_size)

    def _fill(self) -> None:
        while len(self._in_flight) < self.executor.max_in_flight:
            now = self.clock()
            plan = self.scheduler.schedule(now)
            if plan is None:
                return
            self._in_flight.append(_Submitted(plan, now, self._submit(plan)))

    def _submit(self, plan: StepPlan) -> StepResult | None:
        """Start a step. One that cannot be started keeps its place, with its failure."""
        try:
            self.executor.submit(plan)
        except Exception as error:
            return self._failure(plan, error)
        return None

    def _collect(self, plan: StepPlan) -> StepResult:
        try:
            return self.executor.collect()
        except Exception as error:
            return self._failure(plan, error)

    def _failure(self, plan: StepPlan, error: Exception) -> StepResult:
        """The result of a step that raised: its requests end with the error, the others go on."""
        log.error("step %d failed", plan.step, exc_info=error)
        now = self.clock()
        reason = f"Step {plan.step} failed: {type(error).__name__}: {error}"
        return StepResult(
            step=plan.step,
            tokens=[-1 for item in plan.items if item.samples],
            t_start=now,
            t_end=now,
            logprobs={},
            errors={item.number: reason for item in plan.items},
        )

    def _occupancy(self) -> Occupancy:
        return Occupancy(
            total=self.pool.num_pages,
            held=self.pool.num_held,
            cached=self.pool.num_cached,
            stored_tokens=self.scheduler.num_stored_tokens,
            waiting=self.scheduler.num_waiting,
            running=self.scheduler.num_running,
        )

    def _write_events(self) -> list[Request]:
        finished: list[Request] = []
        for event in self.scheduler.take_events():
            self.trace.add_event(event.request, event.kind, event.time)
            if event.kind is EventKind.FINISHED:
                finished.append(event.request)
        return finished
