"""A fake executor that notices foreign, stale and early keys and values; a harness that turns it.

Its "keys and values" are the token ids themselves, written to (page, offset) through a page table
that is fed by the plans alone. The next token is a pure function of the whole sequence *as read
back from the pages*, so a lost, doubled or foreign token changes every token after it.

    harness = Harness(num_pages=8, page_size=4, max_in_flight=2)
    request = harness.submit([1, 2, 3], max_tokens=5)
    harness.run()
    assert request.outputs == expected([1, 2, 3], 5)
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from minicache.page_pool import PagePool
from minicache.plan import StepPlan, StepResult, TokenLogprobs
from minicache.policy import Fcfs, Mixed
from minicache.request import FinishReason, Request, SamplingParams
from minicache.scheduler import (
    EventKind,
    Scheduler,
    SchedulerConfig,
    SchedulerEvent,
    TokenEvent,
)

VOCABULARY = 50_000
EOS = 7
POISON = (-1, -1)


def next_token(sequence: Sequence[int], eos_every: int = 0) -> int:
    """The token after `sequence`. With `eos_every`, about one in so many is `EOS`."""
    code = zlib.crc32(repr(list(sequence)).encode())
    if eos_every and code % eos_every == 0:
        return EOS
    return 1000 + code % VOCABULARY


def expected(prompt: Sequence[int], max_tokens: int, eos_every: int = 0) -> list[int]:
    """What a request generates when nothing ever goes wrong."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_tokens:
        tokens.append(next_token(tokens, eos_every))
        if eos_every and tokens[-1] == EOS:
            break
    return tokens[len(prompt) :]


@dataclass
class _Step:
    plan: StepPlan
    rows: dict[int, list[int]]
    """The rows of the page table as they were when the step was submitted."""

    def names(self, number: int, page_size: int) -> tuple[set[int], set[int]]:
        """The pages that one request reads and that it writes in this step."""
        for item in self.plan.items:
            if item.number == number:
                pages = self.rows[item.row][: -(-item.stop // page_size)]
                return set(pages), set(pages[item.start // page_size :])
        return set(), set()


class FakeExecutor:
    """Runs plans on token ids. A step is executed when it is collected: as late as possible."""

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        num_rows: int,
        *,
        max_in_flight: int = 1,
        seconds: Callable[[StepPlan], float] = lambda plan: 1.0,
        eos_every: int = 0,
    ) -> None:
        """`seconds(plan)`: how long a step takes on the executor's own clock, `time`."""
        self.max_in_flight = max_in_flight
        self.page_size = page_size
        self.seconds = seconds
        self.eos_every = eos_every
        self.time = 0.0
        self.failing: dict[int, str] = {}
        """By request number: what to report as an error when it is next in a step."""
        self.crash: Exception | None = None
        """Raised by the next `collect`, in place of the step's result."""
        self.tokens_computed = 0
        self.closed = False
        self._slots = [[POISON] * page_size for _ in range(num_pages)]
        self._table: list[list[int]] = [[] for _ in range(num_rows)]
        self._owner: list[int] = [-1] * num_rows
        self._newest: list[int | None] = [None] * num_rows
        self._failed: set[tuple[int, int]] = set()
        """Whose keys and values are incomplete: what a later step in flight computes is garbage."""
        self._steps: deque[_Step] = deque()

    def submit(self, plan: StepPlan) -> None:
        assert len(self._steps) < self.max_in_flight, "too many steps in flight"
        for admission in plan.admissions:
            self._table[admission.row] = []
            self._owner[admission.row] = admission.number
            self._failed.discard((admission.number, admission.row))
        for row, column, page in plan.entries:
            columns = self._table[row]
            assert 0 <= page < len(self._slots), f"page {page} is not in the pool"
            assert column == len(columns), "an entry overwrites a page, or leaves a hole"
            columns.append(page)
        step = _Step(plan, {item.row: list(self._table[item.row]) for item in plan.items})
        for item in plan.items:
            assert self._owner[item.row] == item.number, "the row belongs to somebody else"
        self._check_overlap(step)
        self._steps.append(step)

    def collect(self) -> StepResult:
        step = self._steps.popleft()
        if self.crash is not None:
            crash, self.crash = self.crash, None
            self._failed |= {(item.number, item.row) for item in step.plan.items}
            raise crash
        begin, self.time = self.time, self.time + self.seconds(step.plan)
        tokens: list[int] = []
        errors: dict[int, str] = {}
        for item in step.plan.items:
            if item.number in self.failing:
                errors[item.number] = self.failing.pop(item.number)
                self._failed.add((item.number, item.row))
            if (item.number, item.row) in self._failed:
                tokens += [-1] * item.samples
                continue
            sequence = self._compute(step, item)
            if item.samples:
                tokens.append(next_token(sequence, self.eos_every))
                self._newest[item.row] = tokens[-1]
        logprobs: dict[int, TokenLogprobs] = {}
        return StepResult(step.plan.step, tokens, begin, self.time, logprobs, errors)

    def close(self) -> None:
        self.closed = True

    def poison(self, pages: Iterable[int]) -> None:
        """Overwrite pages that nobody may read any more."""
        for page in pages:
            self._slots[page] = [POISON] * self.page_size

    def _compute(self, step: _Step, item) -> list[int]:
        """Write one item's tokens, then read its whole sequence back from the pages."""
        pages = step.rows[item.row]
        tokens = list(item.tokens)
        if not tokens:
            assert item.stop - item.start == 1, "only a decode may lack its input"
            tokens = [self._newest[item.row]]
        assert len(tokens) == item.stop - item.start
        for position, token in enumerate(tokens, item.start):
            assert position // self.page_size < len(pages), "a position beyond the row's pages"
            page, offset = pages[position // self.page_size], position % self.page_size
            self._slots[page][offset] = (position, token)
        self.tokens_computed += len(tokens)
        sequence: list[int] = []
        for position in range(item.stop):
            page, offset = pages[position // self.page_size], position % self.page_size
            stored, token = self._slots[page][offset]
            assert stored == position, f"request {item.number} read stale data at {position}"
            sequence.append(token)
        return sequence

    def _check_overlap(self, step: _Step) -> None:
        """No step writes a page that a step in flight names for somebody else, nor the reverse."""
        numbers = [item.number for item in step.plan.items]
        for earlier in self._steps:
            for other in (item.number for item in earlier.plan.items):
                names, writes = earlier.names(other, self.page_size)
                for number in numbers:
                    if number != other:
                        mine, written = step.names(number, self.page_size)
                        assert not names & written, "a page named by a step in flight was reused"
                        assert not writes & mine, "a page was shared before it was committed"


@dataclass(repr=False)
class Harness:
    """A scheduler on a fake executor, turned as the engine turns it, checked after every turn."""

    num_pages: int = 64
    page_size: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 16
    max_model_len: int = 1000
    max_in_flight: int = 1
    chunked_prefill: bool = True
    watermark: float = 0.0
    prefix_caching: bool = True
    eos_every: int = 0
    batching: object = None
    order: object = None
    requests: list[Request] = field(default_factory=list)
    events: list[SchedulerEvent] = field(default_factory=list)
    tokens: list[TokenEvent] = field(default_factory=list)
    plans: list[StepPlan] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.pool = PagePool(self.num_pages, self.page_size, prefix_caching=self.prefix_caching)
        self.config = SchedulerConfig(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            max_in_flight=self.max_in_flight,
            chunked_prefill=self.chunked_prefill,
            watermark=self.watermark,
            eos_token_ids=frozenset({EOS}),
        )
        self.batching = self.batching or Mixed()
        self.order = self.order or Fcfs()
        self.scheduler = Scheduler(self.pool, self.config, self.batching, self.order)
        self.executor = FakeExecutor(
            self.num_pages,
            self.page_size,
            self.max_num_seqs,
            max_in_flight=self.max_in_flight,
            eos_every=self.eos_every,
        )
        self.in_flight: deque[StepPlan] = deque()
        self.streams: dict[int, list[int]] = {}
        self._progress: dict[int, int] = {}

    # --- what a caller does --------------------------------------------------------------------

    def submit(
        self, prompt: Sequence[int], max_tokens: int = 4, *, id: str | None = None, **fields
    ) -> Request:
        """Queue a request. Keywords go to `Request`, those of `SamplingParams` to that."""
        names = SamplingParams.__dataclass_fields__
        params = {name: fields.pop(name) for name in tuple(fields) if name in names}
        request = Request(
            id if id is not None else f"r{len(self.requests)}",
            prompt,
            SamplingParams(max_tokens=max_tokens, **params),
            **fields,
        )
        self.scheduler.submit(request, self.now)
        self.requests.append(request)
        self.streams[request.number] = []
        return request

    def cancel(self, request: Request) -> bool:
        known = self.scheduler.cancel(request.id, self.now)
        self._take_events()
        self.check()
        return known

    def schedule(self) -> StepPlan | None:
        """Plan one step and submit it."""
        before = self.ready_to_decode()
        plan = self.scheduler.schedule(self.now)
        self._take_events()
        if plan is not None:
            self._check_plan(plan)
            if isinstance(self.batching, Mixed):
                self._check_stall_free(plan, before)
            self.executor.submit(plan)
            self.in_flight.append(plan)
            self.plans.append(plan)
        self.check()
        return plan

    def update(self) -> list[TokenEvent]:
        """Collect the oldest step and commit it."""
        plan = self.in_flight.popleft()
        result = self.executor.collect()
        self.now = result.t_end
        tokens = self.scheduler.update(plan, result)
        self._take_events()
        for request, token, _ in tokens:
            self.streams[request.number].append(token)
        self.tokens += tokens
        self.check()
        return tokens

    def step(self) -> None:
        """One turn of the engine's loop: keep the pipeline full, then collect a step."""
        while len(self.in_flight) < self.max_in_flight and self.schedule() is not None:
            pass
        if self.in_flight:
            self.update()

    def run(self, limit: int = 2000) -> None:
        """Turn until nobody is left, then check that nothing is left."""
        for _ in range(limit):
            if not self.scheduler.has_work:
                return self.check_idle()
            self.step()
        raise AssertionError(f"not done after {limit} steps:\n{self.scheduler.dump()}")

    # --- what must always hold -----------------------------------------------------------------

    @property
    def roster(self):
        return self.scheduler._roster

    def ready_to_decode(self) -> list[Request]:
        """Who runs, lacks one token, and may get another."""
        return [
            request
            for request in self.roster.running.values()
            if len(request.tokens) - request.num_scheduled <= 1
            and request.num_scheduled + 1 < request.max_total_tokens
        ]

    def check(self) -> None:
        """Accounting: pages, rows, holders; and nothing readable in pages that nobody holds."""
        self.pool.check()
        held = self.pool.num_held
        states = self.pool.states()
        free = [page for page, state in enumerate(states) if state == (0, False)]
        assert len(free) + held + self.pool.num_cached == self.num_pages
        table = self.roster.table
        holders = Counter(
            page for request in self.roster.running.values() for page in request.pages
        )
        holders.update(page for left in table._left for page in left.pages)
        assert {page: s.holders for page, s in enumerate(states) if s.holders} == dict(holders)
        assert table.num_coming == sum(len(left.pages) for left in table._left)
        rows = [request.row for request in self.roster.running.values()]
        rows += [left.row for left in table._left]
        assert sorted(rows + table._rows) == list(range(self.max_num_seqs)), (
            "a row is lost or twice"
        )
        assert self.scheduler.num_running <= self.max_num_seqs
        for request in self.roster.running.values():
            self._check_request(request)
        self.executor.poison(free)

    def check_idle(self) -> None:
        """Nothing is left, and everybody ended once."""
        assert self.pool.num_held == 0
        assert not self.roster.table._left
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0
        endings = Counter(
            event.request.number for event in self.events if event.kind is EventKind.FINISHED
        )
        assert endings == {request.number: 1 for request in self.requests}
        for request in self.requests:
            self.check_outputs(request)

    def check_outputs(self, request: Request) -> None:
        """Whatever happened to it, its tokens are those of a run alone, and all were reported."""
        alone = self.alone(request)
        assert request.outputs == self.streams[request.number] == alone[: request.num_outputs]
        if request.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert request.outputs == alone

    def alone(self, request: Request) -> list[int]:
        """What the request would generate alone on an endless machine."""
        prompt = request.tokens[: request.num_prompt_tokens]
        limit = min(request.params.max_tokens, self.max_model_len - len(prompt))
        return expected(prompt, limit, self.eos_every)

    def _check_request(self, request: Request) -> None:
        assert 0 <= request.num_computed <= request.num_scheduled <= request.capacity
        assert request.capacity == len(request.pages) * self.page_size
        assert request.num_scheduled <= len(request.tokens) + self.max_in_flight - 1
        assert request.num_scheduled < request.max_total_tokens
        to_go = len(request.tokens) - request.num_scheduled
        assert (request.number in self.roster.prefilling) == (to_go > 1)

    def _check_plan(self, plan: StepPlan) -> None:
        sizes = [item.stop - item.start for item in plan.items]
        numbers = [item.number for item in plan.items]
        assert plan.num_tokens == sum(sizes) <= plan.budget
        if self.chunked_prefill:
            assert plan.budget == self.max_num_batched_tokens
        assert sizes[: plan.num_decodes] == [1] * plan.num_decodes
        assert len(set(numbers)) == len(numbers), "a request is twice in a step"
        assert all(item.samples for item in plan.items[: plan.num_decodes])
        for admission in plan.admissions:
            self._progress.pop(admission.number, None)
        for item in plan.items:
            assert item.stop > item.start
            done = self._progress.get(item.number)
            assert done == item.start if done is not None else item.start % self.page_size == 0
            self._progress[item.number] = item.stop

    def _check_stall_free(self, plan: StepPlan, ready: list[Request]) -> None:
        """Who was ready is in the step, unless it gave way or its page is still on the way.

        Who gave way may be let in again at once, on pages that others share: then it is a chunk.
        """
        planned = {item.number for item in plan.items}
        most = self.num_pages * self.page_size
        for request in ready:
            waits = request.number in self.scheduler._planner._starved
            too_long = request.num_scheduled >= most  # it ends when its token in flight is known
            assert request.number in planned or request.row < 0 or waits or too_long

    def _take_events(self) -> None:
        self.events += self.scheduler.take_events()
