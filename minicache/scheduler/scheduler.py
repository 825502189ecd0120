"""The scheduler: which tokens of which requests run in the next step, and what became of them.

A request is its known tokens, and how many of them steps have been planned for; a step closes the
gap. A gap of one is a decode. A larger one is a prompt, or what a preempted request must compute
again, cut to what is left of the token budget.

`schedule` plans: it advances `num_scheduled` and takes pages for tokens in flight. `update` commits
tokens, hittable pages and endings. Between the two lie up to `max_in_flight` steps, so a result may
come for a request that has left since: its row is empty by then, and the result is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from minicache.page_pool import PagePool
from minicache.plan import StepPlan, StepResult
from minicache.policy import BatchingPolicy, Fcfs, Mixed, QueueOrder, Situation, Work
from minicache.request import FinishReason, Request, RequestRefused
from minicache.scheduler.checks import check_request, check_result
from minicache.scheduler.config import SchedulerConfig
from minicache.scheduler.draft import Draft
from minicache.scheduler.events import SchedulerEvent, TokenEvent
from minicache.scheduler.planner import Planner
from minicache.scheduler.roster import Roster

log = logging.getLogger(__name__)

_new_event: Callable[[tuple[Request, int, bool]], TokenEvent] = partial(tuple.__new__, TokenEvent)
"""`TokenEvent` from its fields, in half the time: every token is reported by one."""

MAX_EMPTY_STEPS = 16
"""So many times in a row may nothing be found to run while requests are open and no step is out."""


class SchedulerStalled(RuntimeError):
    """Requests are open, but nothing can run: a fault of a policy. The message holds a dump."""


class Scheduler:
    """Plans steps for the requests submitted to it. Not thread-safe; time is an argument."""

    def __init__(
        self,
        pool: PagePool,
        config: SchedulerConfig,
        batching: BatchingPolicy | None = None,
        order: QueueOrder | None = None,
    ) -> None:
        """Without policies of your own, steps are mixed and people are served as they come."""
        self.pool = pool
        self.config = config
        self.batching = batching or Mixed()
        self._roster = Roster(pool, config.max_num_seqs, order or Fcfs())
        margin = int(config.watermark * pool.num_pages)
        self._planner = Planner(pool, self._roster, margin)
        self._in_flight: deque[StepPlan] = deque()
        self._next_step = 0
        self._last = Work.NONE
        self._empty_steps = 0

    def submit(self, request: Request, now: float) -> None:
        """Queue a request. Raises `RequestRefused`, changing nothing, if it can never be served."""
        if request.id in self._roster.live:
            raise RequestRefused(
                f"The id {request.id!r} belongs to a request that is still open; give each its own."
            )
        check_request(request, self.config, self.pool)
        request.max_total_tokens = min(request.max_total_tokens, self.config.max_model_len)
        if not request.params.ignore_eos:
            request.stop_tokens |= self.config.eos_token_ids
        self._roster.enter(request)

    def cancel(self, id: str, now: float) -> bool:
        """End a request wherever it is. Returns whether it was open; a late cancel is logged."""
        request = self._roster.live.get(id)
        if request is None:
            log.info("cancel of %r ignored: no such request is open", id)
            return False
        self._roster.end(request, FinishReason.CANCELLED, now)
        return True

    def preempt(self, request: Request, now: float) -> None:
        """Send a running request back to the queue, as when pages run out. It loses no token."""
        self._roster.preempt(request, now)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """End a request for a reason that only the caller can see, such as a stop string."""
        self._roster.end(request, reason, now)

    def fail(self, request: Request, error: str, now: float) -> None:
        """End a request with an error."""
        self._roster.fail(request, error, now)

    def fail_all(self, error: str, now: float) -> None:
        """End every request: the executor is gone, and what is in flight will not be collected."""
        for request in tuple(self._roster.live.values()):
            self._roster.fail(request, error, now)
        self._roster.table.collected(self._next_step)
        self._in_flight.clear()
        self._empty_steps = 0

    def schedule(self, now: float) -> StepPlan | None:
        """Plan the next step, or return None if nothing can run before a step is collected.

        Raises `SchedulerStalled` when that happens again and again with no step to wait for.
        """
        config, num_open = self.config, len(self._roster.live)
        if len(self._in_flight) >= config.max_in_flight:
            return None
        draft = Draft(self._next_step, config.max_num_batched_tokens, config.chunked_prefill)
        for work in self.batching.attempts(self._situation(now)):
            self._planner.fill(draft, work, now)
            if not draft.is_empty:
                return self._launch(draft.plan())
        if len(self._roster.live) < num_open:
            return self.schedule(now)  # somebody outgrew the pool, and what it held is free now
        self._count_empty_step()
        return None

    def update(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Commit the oldest step in flight: its tokens, the pages it filled, the requests it ended.

        Raises `ValueError` if it is another step's result.
        """
        check_result(plan, result, self._in_flight[0].step if self._in_flight else None)
        self._in_flight.popleft()
        self._roster.table.collected(plan.step)
        if result.errors:
            self._commit_errors(plan, result)
        events = self._commit(plan, result)
        if len(plan.items) > plan.num_decodes:
            self._planner.prompts_stored()
        return events

    def take_events(self) -> list[SchedulerEvent]:
        """What happened to requests since the last call, in order."""
        events, self._roster.events = self._roster.events, []
        return events

    def is_open(self, id: str) -> bool:
        """Whether `id` names a request that waits or runs."""
        return id in self._roster.live

    @property
    def has_work(self) -> bool:
        """Whether a request is open or a step is in flight."""
        return bool(self._roster.live or self._in_flight)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, the preempted among them."""
        return self._roster.num_waiting

    @property
    def num_running(self) -> int:
        """Requests that hold a row of the page table."""
        return len(self._roster.running)

    @property
    def num_stored_tokens(self) -> int:
        """Tokens whose keys and values lie in held pages, each once however many share it.

        Pages that only wait for a step in flight to end count as full.
        """
        running = self._roster.running.values()
        empty = sum(request.capacity - request.num_computed for request in running)
        return self.pool.num_held * self.pool.page_size - empty

    def dump(self) -> str:
        """Everything that explains what runs and what does not, in lines."""
        roster, pool = self._roster, self.pool
        head = (
            f"{type(self.batching).__name__} batching: {self.num_running} running, "
            f"{self.num_waiting} waiting, {len(self._in_flight)} steps in flight; pages: "
            f"{pool.num_held} held, {roster.table.num_coming} of them coming back, "
            f"{pool.num_free} free, {pool.num_cached} of them cached"
        )
        return "\n".join([head, *(f"  {request!r}" for request in roster.live.values())])

    def _commit(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Note what came; then make full pages hittable, all at once; then let go of the ended."""
        holders, page_size = self._roster.table.holders, self.pool.page_size
        events: list[TokenEvent] = []
        filled: list[tuple[Request, int, int]] = []
        ended: list[Request] = []
        sampled = iter(result.tokens)
        for _, row, start, stop, samples, _ in plan.items:
            token = next(sampled) if samples else None
            request = holders[row]
            if request is None:
                continue  # it has left since
            request.num_computed = stop
            if stop // page_size > start // page_size:
                filled.append((request, start // page_size, stop // page_size))
            if token is None:
                continue
            request.tokens.append(token)
            last = token in request.stop_tokens or stop + 1 >= request.max_total_tokens
            if last:
                ended.append(request)
            events.append(_new_event((request, token, last)))
        for request, begin, end in filled:
            pages, tokens, hashes = request.pages, request.tokens, request.page_hashes
            self.pool.commit(pages, tokens, hashes, begin, end, request.salt)
        for request in ended:
            stopped = request.tokens[-1] in request.stop_tokens
            reason = FinishReason.STOP if stopped else FinishReason.LENGTH
            self._roster.end(request, reason, result.t_end)
        return events

    def _commit_errors(self, plan: StepPlan, result: StepResult) -> None:
        """End the requests whose part of the step failed. What it wrote is never committed."""
        for item in plan.items:
            request = self._roster.table.holders[item.row]
            if request is not None and item.number in result.errors:
                request.num_computed = item.stop
                self._roster.fail(request, result.errors[item.number], result.t_end)

    def _situation(self, now: float) -> Situation:
        return Situation(now, self.num_running, self.num_waiting, len(self._in_flight), self._last)

    def _launch(self, plan: StepPlan) -> StepPlan:
        decodes = Work.DECODE if plan.num_decodes else Work.NONE
        chunks = Work.PREFILL if len(plan.items) > plan.num_decodes else Work.NONE
        self._last = decodes | chunks
        self._empty_steps = 0
        self._next_step += 1
        self._in_flight.append(plan)
        self._roster.table.submitted(plan.step)
        return plan

    def _count_empty_step(self) -> None:
        if self._in_flight or not self._roster.live:
            return
        self._empty_steps += 1
        if self._empty_steps > MAX_EMPTY_STEPS:
            raise SchedulerStalled(
                f"Nothing was found to run {self._empty_steps} times in a row, though requests are "
                f"open; look at the batching policy.\n{self.dump()}"
            )
