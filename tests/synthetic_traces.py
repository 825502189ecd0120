"""A tiny deterministic engine that writes real traces, for tests of traces, metrics and pictures.

It stands in for scheduler and cost model: decodes first, then chunks in arrival order under a
budget; one token a step; preemption by recompute of the last admitted when pages run out. Step
times follow Llama-3.1-8B on an H200 (fit: 586 TFLOP/s matmul, 687 attention, 4.2 TB/s).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf

from minicache.plan import PlanItem, StepPlan, StepResult
from minicache.request import FinishReason, Request, SamplingParams
from minicache.trace import EventKind, Occupancy, Trace

PAGE = 16
SOURCE = "simulated from recorded H200 step times\nLlama-3.1-8B, bf16, vLLM 0.24, 2026-11-30"


@dataclass(frozen=True)
class Ask:
    id: str
    arrival: float
    prompt: int
    output: int
    client: str = ""
    cached: int = 0
    cancel: float = inf
    priority: int = 0
    error_after: int | None = None
    """The request fails when it has this many tokens."""


@dataclass
class _Live:
    ask: Ask
    request: Request
    computed: int = 0

    @property
    def gap(self) -> int:
        return len(self.request.tokens) - self.computed

    @property
    def pages(self) -> int:
        return ceil(len(self.request.tokens) / PAGE)


def step_seconds(chunks: list[tuple[int, int]], contexts: list[int]) -> float:
    """Chunks are `(start, stop)`; contexts are the lengths of the decodes."""
    pairs = sum((stop - start) * (start + stop) / 2 for start, stop in chunks)
    tokens = sum(stop - start for start, stop in chunks) + len(contexts)
    flops = 2 * 8.03e9 * tokens / 586e12 + 4 * 32 * 32 * 128 * pairs / 687e12
    reads = (15.01e9 + sum(contexts) * 131_072) / 4.2e12
    return max(flops, reads) + (4.6e-3 if chunks else 1.4e-3)


@dataclass
class Engine:
    """`budget=None` puts a whole prompt into one step, alone: decodes freeze meanwhile."""

    asks: list[Ask]
    budget: int | None = 2048
    pages: int = 20_000
    max_running: int = 64
    source: str = (
        "simulated from recorded H200 step times\nLlama-3.1-8B, bf16, vLLM 0.24, 2026-11-30"
    )
    waiting: list[_Live] = field(default_factory=list)
    running: list[_Live] = field(default_factory=list)

    def run(self, max_steps: int = 10**9) -> Trace:
        self.now, self.step = 0.0, 0
        self.trace = Trace(self.source, page_size=PAGE)
        self.todo = sorted(self.asks, key=lambda ask: ask.arrival)
        self.count = 0
        while (self.todo or self.waiting or self.running) and self.step < max_steps:
            self._arrive()
            self._cancel()
            self._admit()
            if not self.running:
                if not self.todo and not self.waiting:
                    break
                self.now = max(self.now, self.todo[0].arrival) if self.todo else self.now + 0.01
                continue
            self._step()
        return self.trace

    def _arrive(self) -> None:
        while self.todo and self.todo[0].arrival <= self.now:
            ask = self.todo.pop(0)
            request = Request(
                ask.id, range(ask.prompt), SamplingParams(max_tokens=ask.output),
                client=ask.client, arrival=ask.arrival, priority=ask.priority,
            )  # fmt: skip
            if ceil((ask.prompt + 1) / PAGE) > self.pages:
                self.trace.add_refused(request, self.now, f"The prompt has {ask.prompt} tokens.")
                continue
            request.number = self.count
            self.count += 1
            self.trace.add_request(request, self.now)
            self.waiting.append(_Live(ask, request))

    def _cancel(self) -> None:
        for live in [*self.waiting, *self.running]:
            if live.ask.cancel <= self.now:
                self._finish(live, FinishReason.CANCELLED)

    def _finish(self, live: _Live, reason: FinishReason, error: str | None = None) -> None:
        (self.running if live in self.running else self.waiting).remove(live)
        live.request.finish_reason, live.request.error = reason, error
        self.trace.add_event(live.request, EventKind.FINISHED, self.now)

    def _held(self) -> int:
        return sum(live.pages for live in self.running)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.max_running:
            live = self.waiting[0]
            if self._held() + live.pages + 1 > self.pages:
                return
            self.running.append(self.waiting.pop(0))
            first = not live.request.outputs and live.request.num_preemptions == 0
            live.request.num_cached = live.ask.cached if first else live.request.num_cached
            live.computed = live.ask.cached
            self.trace.add_event(live.request, EventKind.ADMITTED, self.now)

    def _preempt(self) -> None:
        while len(self.running) > 1 and self._held() + len(self.running) // PAGE + 1 > self.pages:
            live = self.running.pop()
            live.computed = 0
            live.request.num_preemptions += 1
            self.trace.add_event(live.request, EventKind.PREEMPTED, self.now)
            self.waiting.insert(0, live)

    def _plan(self) -> list[tuple[_Live, int]]:
        """Who computes how many positions in this step."""
        decodes = [(live, 1) for live in self.running if live.gap == 1]
        chunks = [live for live in self.running if live.gap > 1]
        if self.budget is None:
            return [(chunks[0], chunks[0].gap)] if chunks else decodes
        room, parts = self.budget - len(decodes), list(decodes)
        for live in chunks:
            size = min(room, live.gap)
            room -= size
            parts += [(live, size)] if size else []
        return parts

    def _step(self) -> None:
        self._preempt()
        parts = self._plan()
        items = [
            PlanItem(
                live.request.number, i, live.computed, live.computed + n, n == live.gap, [0] * n
            )
            for i, (live, n) in enumerate(parts)
        ]
        decodes = sum(stop - start == 1 for _, _, start, stop, _, _ in items)
        tokens = sum(n for _, n in parts)
        plan = StepPlan(self.step, items, decodes, tokens, self.budget or 131_072, [], [])
        start = self.now
        self.now += step_seconds(
            [(i.start, i.stop) for i in items[decodes:]], [i.stop for i in items[:decodes]]
        )
        sampled = [live for (live, n) in parts if n == live.gap]
        for live, n in parts:
            live.computed += n
        for live in sampled:
            live.request.tokens.append(7)
        result = StepResult(self.step, [7] * len(sampled), start, self.now, {}, {})
        stored = sum(live.computed for live in self.running)
        held = sum(ceil(live.computed / PAGE) for live in self.running)
        queues = len(self.waiting), len(self.running)
        occupancy = Occupancy(self.pages, held, 0, stored, *queues)
        self.trace.add_step(plan, result, occupancy, planned=start)
        self.trace.add_tokens([live.request.number for live in sampled], self.step, self.now)
        self.step += 1
        for live in sampled:
            self._end(live)

    def _end(self, live: _Live) -> None:
        if live.ask.error_after == live.request.num_outputs:
            self._finish(live, FinishReason.ERROR, "The sampler failed for this request.")
        elif live.request.num_outputs == live.ask.output:
            self._finish(live, FinishReason.LENGTH)


def freeze_asks() -> list[Ask]:
    """Three chats, then one document of 64k tokens: the mockup's arrivals."""
    lengths = {"A": 210, "B": 130, "C": 230}
    chats = [Ask(f"chat {name}", 0.0, 1000, n, client=name) for name, n in lengths.items()]
    return [*chats, Ask("long, 64k", 0.35, 65_536, 60, client="D")]


def eventful_asks() -> list[Ask]:
    """A small pool: preemption, cancels while waiting and running, an error, a refusal."""
    return [
        Ask("alpha", 0.0, 600, 60, client="a"),
        Ask("beta", 0.01, 900, 120, client="b", cancel=0.35),
        Ask("gamma", 0.02, 1200, 90, client="c", cached=512),
        Ask("delta", 0.03, 700, 80, client="a", error_after=20),
        Ask("epsilon", 0.04, 800, 100, client="b"),
        Ask("zeta", 0.05, 2000, 40, client="c", cancel=0.12),
        Ask("eta", 0.10, 90_000, 40, client="c"),
        Ask("theta", 0.30, 300, 1, client="a"),
    ]  # fmt: skip


def frozen_trace() -> Trace:
    return Engine(freeze_asks(), budget=None).run()


def chunked_trace() -> Trace:
    return Engine(freeze_asks(), budget=2048).run()


def eventful_trace(budget: int | None = 256) -> Trace:
    return Engine(eventful_asks(), budget=budget, pages=216).run()
