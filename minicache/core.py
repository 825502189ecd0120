"""The loop that real, fake and simulated engines share: plan, run, commit, write it down.

It knows nothing of torch or text. `LLM` turns it with the real model; the simulator turns the same
loop with a cost model on a virtual clock, so both leave the same trace.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
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
        """Keep the executor's pipeline full, then collect its oldest step and commit it.

        If the scheduler raises, or a policy or pool in it, then what it had half done cannot be
        trusted: every request ends with the error, which is raised again. Who asks
        `take_finished` then hears of them all.
        """
        self._fill()
        if not self._in_flight:
            return Progress([], self.take_finished(), None)
        plan, planned, result = self._in_flight[0]
        if result is None:
            result = self._collect(plan)
        self._in_flight.popleft()
        with self._all_or_nobody():
            tokens = self.scheduler.update(plan, result)
        self.trace.add_step(plan, result, self._occupancy(), planned=planned)
        self.trace.add_tokens([event.request.number for event in tokens], plan.step, result.t_end)
        return Progress(tokens, self.take_finished(), result)

    def cancel(self, id: str) -> list[Request]:
        """End a request wherever it is. An unknown or ended id is ignored. Returns who ended."""
        self.scheduler.cancel(id, self.clock())
        return self.take_finished()

    def finish(self, request: Request, reason: FinishReason) -> list[Request]:
        """End a request for a reason that only its text shows. Returns who ended.

        One that has ended already, for its length, is said to have ended for this reason too.
        """
        if request.finish_reason is FinishReason.LENGTH:
            request.finish_reason = reason
            self.trace.requests.set(self.trace.row_of(request.number), "reason", reason.value)
        self.scheduler.finish(request, reason, self.clock())
        return self.take_finished()

    def take_finished(self) -> list[Request]:
        """Who has ended since the last call; what else happened is written to the trace too."""
        finished: list[Request] = []
        for event in self.scheduler.take_events():
            self.trace.add_event(event.request, event.kind, event.time)
            if event.kind is EventKind.FINISHED:
                finished.append(event.request)
        return finished

    def reset_trace(self) -> None:
        """Start an empty trace. Raises `RuntimeError` while there is work."""
        if self.has_work:
            raise RuntimeError("Requests are still open; finish or cancel them before a new trace.")
        self.trace = Trace(self.trace.source, page_size=self.trace.page_size)

    def _fill(self) -> None:
        while len(self._in_flight) < self.executor.max_in_flight:
            now = self.clock()
            with self._all_or_nobody():
                plan = self.scheduler.schedule(now)
            if plan is None:
                return
            self._in_flight.append(_Submitted(plan, now, None))
            self._submit(plan)

    def _submit(self, plan: StepPlan) -> None:
        """Start the newest step. One that cannot be started keeps its place, with its failure."""
        try:
            self.executor.submit(plan)
        except BaseException as error:
            self._in_flight[-1] = self._in_flight[-1]._replace(result=self._failure(plan, error))
            if not isinstance(error, Exception):
                raise  # Ctrl-C: the step's requests end with it, the others can go on

    def _collect(self, plan: StepPlan) -> StepResult:
        """The result of the oldest step, which keeps its place until it is known."""
        try:
            return self.executor.collect()
        except BaseException as error:
            result = self._failure(plan, error)
            self._in_flight[0] = self._in_flight[0]._replace(result=result)
            if not isinstance(error, Exception):
                raise
            return result

    @contextmanager
    def _all_or_nobody(self) -> Generator[None]:
        """Whatever raises in here ends every request, and is raised again."""
        try:
            yield
        except BaseException as error:
            started = [step.plan for step in self._in_flight if step.result is None]
            for plan in started:
                self._collect(plan)  # an executor must not be left with a step nobody collects
            self._in_flight.clear()
            self.scheduler.fail_all(f"The scheduler failed: {_brief(error)}", self.clock())
            raise

    def _failure(self, plan: StepPlan, error: BaseException) -> StepResult:
        """The result of a step that raised: its requests end with the error, the others go on."""
        if isinstance(error, Exception):
            log.error("step %d failed", plan.step, exc_info=error)
        now = self.clock()
        reason = f"Step {plan.step} failed: {_brief(error)}"
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


def _brief(error: BaseException) -> str:
    """Kind and first line: what follows it, such as a dump, is for the log."""
    line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
