"""Any sequence of submits, steps, cancels and stop strings: what the caller of `Engine` sees.

The joined deltas are the offline decode of the output ids up to the first stop string, every
request ends in one last delta, the pool is idle at the end, and the trace adds up.
"""

from __future__ import annotations

from collections import Counter
from math import isclose

from fake_executor import EOS, FakeExecutor
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import byte_level

from minicache.core import EngineCore
from minicache.engine import Delta, Engine
from minicache.metrics import measure
from minicache.page_pool import PagePool
from minicache.policy import BATCHING, ORDERS
from minicache.request import FinishReason, RequestRefused, SamplingParams
from minicache.scheduler import Scheduler, SchedulerConfig
from minicache.tokenizer import Tokenizer
from minicache.trace import Trace, phases

# One-byte tokens, halves and quarters of characters, a merged word, a special token; few of each,
# so that stop strings are found, begun and given up all the time.
TOKENIZER = Tokenizer(byte_level(), eos_token_ids=[EOS])
WORDS = [
    *TOKENIZER.encode("abcab the🦜é"),
    *TOKENIZER.encode("\N{FAMILY}")[:2],
    *TOKENIZER.special_tokens.values(),
]
STOPS = ["ab", "abc", "bca", "🦜", "é", " the", "\ufffd", "cab the", "a"]


class Babbling(FakeExecutor):
    """Says words of the tokenizer; which ones is a pure function of the sequence before."""

    def collect(self):
        result = super().collect()
        words = [WORDS[token % len(WORDS)] if token > EOS else token for token in result.tokens]
        for row, newest in enumerate(self._newest):
            if newest is not None and newest > EOS:
                self._newest[row] = WORDS[newest % len(WORDS)]
        return result._replace(tokens=words)


def make_engine(*, depth, batching, order, pages, page_size, rows, extra, chunked) -> Engine:
    executor = Babbling(pages, page_size, rows, max_in_flight=depth, eos_every=40)
    pool = PagePool(pages, page_size, debug=True)
    limits = SchedulerConfig(
        max_num_seqs=rows,
        max_num_batched_tokens=rows + extra,
        max_model_len=60,
        max_in_flight=depth,
        chunked_prefill=chunked,
        eos_token_ids=frozenset({EOS}),
    )
    scheduler = Scheduler(pool, limits, BATCHING[batching](), ORDERS[order]())
    trace = Trace("fake", page_size=page_size)
    return Engine(EngineCore(scheduler, pool, executor, trace, lambda: executor.time), TOKENIZER)


ENGINES = st.builds(
    make_engine,
    depth=st.integers(1, 2),
    batching=st.sampled_from(sorted(BATCHING)),
    order=st.sampled_from(sorted(ORDERS)),
    pages=st.integers(5, 18),
    page_size=st.sampled_from([1, 3, 4]),
    rows=st.integers(2, 5),
    extra=st.integers(0, 20),
    chunked=st.booleans(),
)
SUBMIT = st.tuples(
    st.just("submit"),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=25),
    st.integers(1, 30),
    st.lists(st.sampled_from(STOPS), max_size=3, unique=True).map(tuple),
)
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 8))
STEP = st.tuples(st.just("step"), st.integers(1, 5))
FAIL = st.tuples(st.just("fail"), st.integers(0, 8))


class Listener:
    """Turns the engine, and keeps what came for whom."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.asked: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.deltas: dict[str, list[Delta]] = {}

    def submit(self, prompt: list[int], max_tokens: int, stop: tuple[str, ...]) -> None:
        params = SamplingParams(max_tokens=max_tokens, stop=stop, logprobs=0)
        try:
            id = self.engine.submit(prompt, params, priority=len(prompt) % 3)
        except RequestRefused:
            return
        self.asked[id] = max_tokens, stop
        self.deltas[id] = []

    def cancel(self, which: int) -> None:
        self.engine.cancel(f"request-{which}")

    def fail(self, which: int) -> None:
        """The next part that this request has in a step will fail."""
        executor = self.engine.core.executor
        assert isinstance(executor, FakeExecutor)
        executor.failing[which] = "made to fail"

    def step(self, turns: int = 1) -> None:
        for _ in range(turns):
            for delta in self.engine.step():
                self.deltas[delta.id].append(delta)

    def run(self) -> None:
        for _ in range(3000):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError(self.engine.scheduler.dump())


def offline(
    tokens: list[int], reason: FinishReason | None, stop: tuple[str, ...]
) -> tuple[str, bool]:
    """The text of all tokens but an ending one, cut at the first complete stop string; if so."""
    ended_by_token = reason is FinishReason.STOP and tokens[-1:] == [EOS]
    text = TOKENIZER.decode(tokens[:-1] if ended_by_token else tokens)
    for end in range(1, len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def check_listener(heard: Listener, tally: Counter[str]) -> None:
    for id, (max_tokens, stop) in heard.asked.items():
        parts = heard.deltas[id]
        assert [part.finish_reason is not None for part in parts] == [False] * (len(parts) - 1) + [
            True
        ], id
        reason = parts[-1].finish_reason
        tokens = [token for part in parts for token in part.token_ids]
        assert len(tokens) <= max_tokens
        assert all(len(part.token_ids) <= 1 for part in parts)
        text, was_cut = offline(tokens, reason, stop)
        assert "".join(part.text for part in parts) == text, (id, stop)
        assert not (was_cut and reason is FinishReason.LENGTH), "a stop string is a stop"
        assert (reason is FinishReason.ERROR) == (parts[-1].error is not None)
        tally[str(reason)] += 1
        tally["stopped by text"] += reason is FinishReason.STOP and tokens[-1] != EOS


def check_trace(trace: Trace, heard: Listener, tally: Counter[str]) -> None:
    """Invariant 9, for every request of every run."""
    counts = Counter(record.number for record in trace.tokens)
    gaps = Counter[int]()
    last: dict[int, float] = {}
    for token in trace.tokens:
        if token.number in last:
            gaps[token.number] += 1
            assert token.time >= last[token.number]
        last[token.number] = token.time
    for number, (request, life, record) in enumerate(
        zip(measure(trace), phases(trace), trace.requests, strict=True)
    ):
        if record.refused:
            continue
        heard_tokens = [t for d in heard.deltas[record.id] for t in d.token_ids]
        assert record.number is not None and counts[record.number] == len(heard_tokens), number
        assert record.reason is heard.deltas[record.id][-1].finish_reason
        if not heard_tokens:
            continue
        assert gaps[record.number] == len(heard_tokens) - 1
        queue, prefill, decode = request.queue_s, request.prefill_s, request.decode_s
        assert queue is not None and prefill is not None and decode is not None
        parts = (queue, prefill, decode, request.preempted_s)
        assert request.e2e_s is not None and isclose(sum(parts), request.e2e_s, abs_tol=1e-9)
        assert min(parts) >= 0 and life[0].start == record.arrival
        tally["preempted"] += request.num_preemptions


def test_any_sequence_of_calls():
    """vllm#3574, vllm#2577, exo#1691, vllm#33377, mistral.rs#2076, vllm#13169, in any mixture."""
    tally: Counter[str] = Counter()

    @settings(max_examples=500, deadline=None, derandomize=True, database=None)
    @given(ENGINES, st.lists(st.one_of(SUBMIT, SUBMIT, STEP, STEP, CANCEL, FAIL), max_size=25))
    def run(engine: Engine, calls: list[tuple]) -> None:
        heard = Listener(engine)
        for name, *arguments in calls:
            getattr(heard, name)(*arguments)
        heard.run()
        assert engine.pool.num_held == 0 and not engine._open and not engine.step()
        engine.pool.check()
        check_listener(heard, tally)
        check_trace(engine.trace, heard, tally)
        engine.reset_trace()

    run()
    for reason in FinishReason:
        assert tally[str(reason)] >= 20, tally
    assert tally["stopped by text"] >= 60 and tally["preempted"] >= 20, tally
