"""Text in, text out: deltas, stop strings, cancel, steps that fail. On a scripted executor."""

from collections import deque

import pytest
from tiny_tokenizers import byte_level

from minicache.core import EngineCore
from minicache.engine import Delta, Engine
from minicache.page_pool import PagePool
from minicache.plan import StepPlan, StepResult, TokenLogprobs
from minicache.request import FinishReason, RequestRefused, SamplingParams
from minicache.scheduler import Scheduler, SchedulerConfig
from minicache.tokenizer import Tokenizer
from minicache.trace import Trace

EOS = 0
PROMPT = [70, 71, 72]


class Scripted:
    """Says what each request was told to say, by request number; then nothing but `EOS`."""

    def __init__(self, max_in_flight: int) -> None:
        self.max_in_flight = max_in_flight
        self.script: dict[int, list[int]] = {}
        self.prompts: dict[int, int] = {}
        self.submit_error: Exception | None = None
        self.collect_error: Exception | None = None
        self.time = 0.0
        self._plans: deque[StepPlan] = deque()

    def submit(self, plan: StepPlan) -> None:
        if self.submit_error:
            error, self.submit_error = self.submit_error, None
            raise error
        self._plans.append(plan)

    def collect(self) -> StepResult:
        plan = self._plans.popleft()
        if self.collect_error:
            error, self.collect_error = self.collect_error, None
            raise error
        begin, self.time = self.time, self.time + 1.0
        said = [self._say(item) for item in plan.items if item.samples]
        logprobs = {item.number: TokenLogprobs(-0.5, []) for item in plan.items if item.samples}
        return StepResult(plan.step, said, begin, self.time, logprobs, {})

    def close(self) -> None:
        self._plans.clear()

    def _say(self, item) -> int:
        words = self.script.get(item.number, [])
        index = item.stop - self.prompts.get(item.number, len(PROMPT))
        return words[index] if index < len(words) else EOS


def make_engine(max_in_flight: int = 1, num_pages: int = 32, budget: int = 16, rows: int = 4):
    tokenizer = Tokenizer(byte_level(), eos_token_ids=[EOS])
    executor = Scripted(max_in_flight)
    pool = PagePool(num_pages, 4, debug=True)
    config = SchedulerConfig(
        max_num_seqs=rows,
        max_num_batched_tokens=budget,
        max_model_len=200,
        max_in_flight=max_in_flight,
        eos_token_ids=frozenset([EOS]),
    )
    core = EngineCore(
        Scheduler(pool, config), pool, executor, Trace("scripted"), lambda: executor.time
    )
    return Engine(core, tokenizer), executor, tokenizer


def say(engine: Engine, executor: Scripted, text: str, params: SamplingParams | None = None, **how):
    """Submit a request that will answer `text` and end."""
    id = engine.submit(PROMPT, params or SamplingParams(max_tokens=100), **how)
    number = max(entry.request.number for entry in engine._open.values())
    executor.script[number] = engine.tokenizer.encode(text)
    return id


def finish(engine: Engine) -> dict[str, list[Delta]]:
    """Run to the end; every request has exactly one last delta, and every page is free."""
    deltas: dict[str, list[Delta]] = {}
    for _ in range(1000):
        if not engine.has_work:
            break
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
    assert not engine.has_work
    assert engine.pool.num_held == 0
    for parts in deltas.values():
        assert [part.finish_reason is not None for part in parts].count(True) == 1
        assert parts[-1].finish_reason is not None
    return deltas


def text_of(parts: list[Delta]) -> str:
    return "".join(part.text for part in parts)


@pytest.mark.parametrize("depth", [1, 2])
def test_deltas_join_to_the_text_and_to_all_tokens(depth: int):
    engine, executor, tokenizer = make_engine(depth)
    texts = {say(engine, executor, text): text for text in ["naïve 日本 👩‍👩‍👧!", "the cat", ""]}
    deltas = finish(engine)
    for id, text in texts.items():
        parts = deltas[id]
        assert text_of(parts) == text
        assert parts[-1].finish_reason is FinishReason.STOP
        assert [t for part in parts for t in part.token_ids] == [*tokenizer.encode(text), EOS]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_stop_string_cuts_the_text_and_frees_the_pages(depth: int):
    engine, executor, _ = make_engine(depth)
    stopped = say(engine, executor, "one END two", SamplingParams(max_tokens=99, stop=("END",)))
    other = say(engine, executor, "one END two")
    deltas = finish(engine)
    assert text_of(deltas[stopped]) == "one "
    assert deltas[stopped][-1].finish_reason is FinishReason.STOP
    assert text_of(deltas[other]) == "one END two"
    assert engine.trace.requests[0].reason is FinishReason.STOP


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_cancel_gives_one_last_delta_and_the_pages_back(depth: int, turns: int):
    """Waiting, mid-chunk and decoding, with steps in flight: vllm#33377, sglang#37833."""
    engine, executor, _ = make_engine(depth, budget=4)
    gone = engine.submit(list(range(60, 70)), SamplingParams(max_tokens=50))
    executor.prompts[0] = 10
    executor.script[0] = [80] * 60
    stays = say(engine, executor, "the other one goes on")
    early = [delta for _ in range(turns) for delta in engine.step()]
    engine.cancel(gone)
    engine.cancel(gone)
    engine.cancel("nobody")
    assert engine.has_work
    deltas = finish(engine)
    assert deltas[gone][-1].finish_reason is FinishReason.CANCELLED
    assert all(delta.finish_reason is None for delta in early)
    assert text_of([d for d in early if d.id == stays] + deltas[stays]) == "the other one goes on"


def test_cancelling_the_only_request_needs_one_more_step():
    engine, _, _ = make_engine()
    id = engine.submit(PROMPT)
    engine.cancel(id)
    assert [(d.id, d.finish_reason) for d in engine.step()] == [(id, FinishReason.CANCELLED)]
    assert not engine.has_work and engine.step() == []


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("where", ["submit_error", "collect_error"])
def test_a_step_that_raises_ends_its_requests_and_the_others_go_on(depth: int, where: str):
    """mistral.rs#2076, TensorRT-LLM#13318: an error is terminal for those in the step alone."""
    engine, executor, _ = make_engine(depth, rows=2)
    first = [say(engine, executor, "the cat sat on the mat") for _ in range(2)]
    waiting = say(engine, executor, "served later")
    early = engine.step()
    setattr(executor, where, RuntimeError("the kernel fell over"))
    deltas = finish(engine)
    for id in first:
        last = deltas[id][-1]
        assert last.finish_reason is FinishReason.ERROR
        assert "the kernel fell over" in last.error
        assert len([d for d in early if d.id == id]) == 1, "tokens from before the fault stay"
    assert text_of(deltas[waiting]) == "served later"
    assert deltas[waiting][-1].error is None


def test_ctrl_c_in_a_step_is_not_swallowed():
    engine, executor, _ = make_engine()
    engine.submit(PROMPT)
    executor.collect_error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        engine.step()


def test_max_tokens_inside_a_character_ends_normally():
    """Camelid#288."""
    engine, executor, tokenizer = make_engine()
    assert len(tokenizer.encode("🦜")) > 2
    id = say(engine, executor, "🦜", SamplingParams(max_tokens=2))
    parts = finish(engine)[id]
    assert parts[-1].finish_reason is FinishReason.LENGTH
    assert text_of(parts) == tokenizer.decode(tokenizer.encode("🦜")[:2])


def test_logprobs_come_with_their_token():
    engine, executor, _ = make_engine()
    id = say(engine, executor, "the cat")
    parts = finish(engine)[id]
    assert [len(part.token_ids) for part in parts if part.logprobs] == [1] * len(
        [part for part in parts if part.token_ids]
    )


def test_a_refused_request_changes_nothing_but_the_trace():
    engine, executor, _ = make_engine(num_pages=8)
    with pytest.raises(RequestRefused, match="empty"):
        engine.submit([])
    with pytest.raises(RequestRefused, match="32"):
        engine.submit(list(range(60, 92)))
    id = say(engine, executor, "short", id="mine")
    with pytest.raises(RequestRefused, match="still open"):
        engine.submit(PROMPT, id="mine")
    assert text_of(finish(engine)[id]) == "short"
    assert engine.trace.num_rejected == 3
    assert id == "mine" and engine.submit(PROMPT, id="mine") == "mine", "the id is free again"


def test_text_needs_a_tokenizer():
    engine, _, _ = make_engine()
    bare = Engine(engine.core, None)
    with pytest.raises(RequestRefused, match="token ids"):
        bare.submit("text")
    bare.submit(PROMPT, SamplingParams(max_tokens=3, ignore_eos=True))
    deltas = finish(bare)
    assert [d.text for parts in deltas.values() for d in parts] == [""] * 4


def test_a_new_trace_only_when_nothing_is_open():
    engine, executor, _ = make_engine()
    say(engine, executor, "a")
    with pytest.raises(RuntimeError, match="still open"):
        engine.reset_trace()
    finish(engine)
    engine.reset_trace()
    say(engine, executor, "b")
    finish(engine)
    assert len(engine.trace.requests) == 1
