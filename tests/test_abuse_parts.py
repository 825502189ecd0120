"""Parts of one's own that fail: no hang, no leak, one clear error, and those not touched go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fake_executor import FakeExecutor, Harness, expected
from tiny_folder import make_tiny_llama

from minicache import LLM, FinishReason, SamplingParams
from minicache.attention import TorchPagedAttention
from minicache.core import EngineCore
from minicache.page_pool import PagePool
from minicache.policy import Fcfs, Mixed
from minicache.request import Request
from minicache.sampler import Sampler
from minicache.scheduler import Scheduler, SchedulerConfig, SchedulerStalled
from minicache.trace import Trace

LONG, SHORT = list(range(60, 80)), [70, 71]
PARAMS = SamplingParams(max_tokens=5, ignore_eos=True)


@pytest.fixture(autouse=True)
def one_thread():
    """A model this small loses more by waiting for a second thread than it gains."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("models"))


def make(folder: Path, **options) -> LLM:
    return LLM(folder, **{"dtype": "float32", "num_pages": 64, "seed": 0, **options})


def check_idle(llm: LLM) -> None:
    llm.engine.pool.check()
    assert llm.engine.pool.num_held == 0 and not llm.engine.has_work


def check_serves(llm: LLM) -> None:
    """Whatever happened, it is over: the next request is served, and nothing stays behind."""
    check_idle(llm)
    (output,) = llm.generate(LONG, PARAMS)
    assert output.finish_reason is FinishReason.LENGTH and len(output.token_ids) == 5
    check_idle(llm)


# --- who reads --------------------------------------------------------------------------------


def test_streams_read_by_turns_lose_nothing(folder: Path):
    """Each took the other's deltas out of the engine, and both then waited for ever."""
    with make(folder) as llm:
        alone = [llm.generate(prompt, PARAMS)[0].text for prompt in (LONG, SHORT)]
        pairs = zip(llm.stream(LONG, PARAMS), llm.stream(SHORT, PARAMS), strict=True)
        texts = [[delta.text for delta in stream] for stream in zip(*pairs, strict=True)]
        assert ["".join(parts) for parts in texts] == alone
        check_serves(llm)


def test_a_generate_between_two_words_of_a_stream(folder: Path):
    with make(folder) as llm:
        alone = llm.generate(LONG, PARAMS)[0].token_ids
        stream = llm.stream(LONG, PARAMS)
        tokens = list(next(stream).token_ids)
        other = llm.generate(SHORT, SamplingParams(max_tokens=20, ignore_eos=True))
        assert len(other[0].token_ids) == 20
        tokens += [token for delta in stream for token in delta.token_ids]
        assert tokens == alone
        check_serves(llm)


def test_a_stream_whose_end_somebody_else_read_says_so(folder: Path):
    with make(folder) as llm:
        stream = llm.stream(SHORT, PARAMS)
        next(stream)
        while llm.engine.has_work:
            llm.engine.step()
        with pytest.raises(RuntimeError, match="was read by another call"):
            list(stream)
        check_serves(llm)


# --- Ctrl-C where the time is spent -----------------------------------------------------------


class Interrupted(TorchPagedAttention):
    """Ctrl-C inside the model, at one call."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def __call__(self, *arguments):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().__call__(*arguments)


@pytest.mark.parametrize("at", [1, 4])
def test_ctrl_c_inside_a_step_leaves_an_engine_that_serves(folder: Path, at: int):
    """The step stayed in flight for ever: its pages were lost, and the next `generate` hung."""
    part = Interrupted(at)
    with make(folder, decode_attention=part, prefill_attention=part) as llm:
        with pytest.raises(KeyboardInterrupt):
            llm.generate([LONG, SHORT], PARAMS)
        check_serves(llm)


def make_core(max_in_flight: int, **parts) -> tuple[EngineCore, FakeExecutor]:
    executor = FakeExecutor(32, 4, 4, max_in_flight=max_in_flight)
    pool = PagePool(32, 4, debug=True)
    limits = SchedulerConfig(
        max_num_seqs=4,
        max_num_batched_tokens=16,
        max_model_len=100,
        max_in_flight=max_in_flight,
    )
    scheduler = Scheduler(pool, limits, parts.get("batching"), parts.get("order"))
    trace = Trace("fake", page_size=4)
    return EngineCore(scheduler, pool, executor, trace, lambda: executor.time), executor


def ask(core: EngineCore, count: int, prompt: int = 6, max_tokens: int = 8) -> list[Request]:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    requests = [Request(f"{i}", range(20 * i, 20 * i + prompt), params) for i in range(count)]
    for request in requests:
        core.submit(request)
    return requests


def run(core: EngineCore, limit: int = 200) -> None:
    for _ in range(limit):
        if not core.has_work:
            break
        core.step()
    assert not core.has_work and core.pool.num_held == 0


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("method", ["submit", "collect"])
def test_ctrl_c_ends_the_requests_of_its_step_and_no_other(depth: int, method: str, monkeypatch):
    core, executor = make_core(depth)
    requests = ask(core, 6)
    core.step()
    real = getattr(executor, method)

    def interrupt(*arguments):
        if method == "collect":
            real()
        raise KeyboardInterrupt

    monkeypatch.setattr(executor, method, interrupt)
    with pytest.raises(KeyboardInterrupt):
        core.step()
    monkeypatch.undo()
    run(core)
    served = [request for request in requests if request.finish_reason is FinishReason.LENGTH]
    stopped = [request for request in requests if request.finish_reason is FinishReason.ERROR]
    assert len(served) + len(stopped) == 6 and 2 <= len(served) < 6
    assert all("KeyboardInterrupt" in str(request.error) for request in stopped)
    for request in served:
        start = request.tokens[0]
        assert request.outputs == expected(range(start, start + 6), 8)


# --- policies and orders ----------------------------------------------------------------------


class Never:
    def attempts(self, situation):
        return ()


class RaisingPolicy(Mixed):
    def attempts(self, situation):
        if situation.now >= 2:
            raise ZeroDivisionError("a policy of my own")
        return super().attempts(situation)


class RaisingVictim(Fcfs):
    def victim(self, running):
        raise LookupError("no victim")


class RaisingPeek(Fcfs):
    left = 3

    def peek(self):
        self.left -= 1
        if self.left == 0:
            raise LookupError("nobody there")
        return super().peek()


class RaisingRemove(Fcfs):
    left = 2

    def remove(self, request):
        self.left -= 1
        if self.left == 0:
            raise LookupError("not in my list")
        super().remove(request)


class NotThePolicy(Mixed):
    def attempts(self, situation):
        return None


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"batching": Never}, SchedulerStalled),
        ({"batching": RaisingPolicy}, ZeroDivisionError),
        ({"batching": NotThePolicy}, TypeError),
        ({"order": RaisingVictim}, LookupError),
        ({"order": RaisingPeek}, LookupError),
        ({"order": RaisingRemove}, LookupError),
    ],
    ids=lambda value: str(value),
)
def test_a_scheduling_part_that_fails_ends_everybody_once(depth: int, parts, error):
    """TensorRT-LLM#13318: the loop died, all requests hung. What a failing part had half planned is
    no plan: everybody ends with the error, pages and rows come back, and the caller sees it raised.
    """
    core, _ = make_core(depth, **{name: part() for name, part in parts.items()})
    requests = ask(core, 6, prompt=20, max_tokens=30)
    with pytest.raises(error):
        for _ in range(300):
            core.step()
    assert not core.has_work and core.pool.num_held == 0
    core.pool.check()
    ended = core.take_finished()
    assert {request.finish_reason for request in requests} == {FinishReason.ERROR}
    assert {request.number for request in ended} <= {request.number for request in requests}
    assert all(error.__name__ in str(request.error) for request in requests)
    assert all("\n" not in str(request.error) for request in requests)
    reasons = [record.reason for record in core.trace.requests]
    assert reasons == [FinishReason.ERROR] * 6
    assert sorted(core.scheduler._roster.table._rows) == [0, 1, 2, 3]


def test_after_a_failing_part_the_engine_serves_as_before():
    core, _ = make_core(2, order=RaisingPeek())
    ask(core, 6)
    with pytest.raises(LookupError):
        for _ in range(100):
            core.step()
    core.take_finished()
    again = ask(core, 5)
    run(core)
    assert [request.outputs for request in again] == [
        expected(range(20 * i, 20 * i + 6), 8) for i in range(5)
    ]


def test_a_stall_does_not_count_against_those_who_come_later(folder: Path):
    with make(folder, batching=Never()) as llm:
        for _ in range(2):
            with pytest.raises(SchedulerStalled, match="17 times in a row"):
                llm.generate([LONG, SHORT], PARAMS)
            check_idle(llm)


def test_last_deltas_come_although_the_step_raised(folder: Path):
    with make(folder, batching=Never()) as llm:
        for id in "ab":
            llm.engine.submit(SHORT, PARAMS, id=id)
        with pytest.raises(SchedulerStalled):
            for _ in range(20):
                llm.engine.step()
        deltas = llm.engine.step()
        assert [(delta.id, delta.finish_reason) for delta in deltas] == [
            ("a", FinishReason.ERROR),
            ("b", FinishReason.ERROR),
        ]
        check_idle(llm)


def test_an_order_that_will_not_take_somebody_is_asked_first():
    class Picky(Fcfs):
        def push(self, request):
            if request.id == "1":
                raise LookupError("not you")
            super().push(request)

    harness = Harness(order=Picky())
    harness.submit([1, 2], 3)
    with pytest.raises(LookupError):
        harness.submit([3, 4], 3, id="1")
    assert not harness.scheduler.is_open("1")
    harness.run()


# --- sampler ----------------------------------------------------------------------------------


class Odd(Sampler):
    """Chooses what it is told to for request 1, and as ever for the others."""

    def __init__(self, change) -> None:
        super().__init__(0)
        self.change = change
        self.numbers: dict[int, int] = {}

    def admit(self, row, number, params):
        self.numbers[row] = number
        super().admit(row, number, params)

    def __call__(self, logits, rows, positions):
        chosen = super().__call__(logits, rows, positions)
        mine = [self.numbers[row] == 1 for row in rows]
        pairs = zip(chosen.tokens, mine, strict=True)
        return chosen._replace(tokens=[self.change(t) if m else t for t, m in pairs])


@pytest.mark.parametrize("token", [-1, 344, 2**40, 2**70, 7.5, "a", None], ids=str)
def test_a_sampler_that_chooses_no_token_ends_that_request_only(folder: Path, token):
    """Some of these raised out of `step()`, where the tokens of all the others were lost."""
    with make(folder, sampler=Odd(lambda _: token)) as llm:
        good, bad, more = llm.generate([LONG, SHORT, LONG[:9]], PARAMS)
        assert bad.finish_reason is FinishReason.ERROR and not bad.token_ids and bad.error
        assert len(good.token_ids) == len(more.token_ids) == 5
        check_idle(llm)


def test_a_sampler_may_return_tensors(folder: Path):
    with make(folder) as plain, make(folder, sampler=Odd(torch.tensor)) as odd:
        want = [output.token_ids for output in plain.generate([LONG, SHORT], PARAMS)]
        got = [output.token_ids for output in odd.generate([LONG, SHORT], PARAMS)]
        assert got == want and {type(t) for tokens in got for t in tokens} == {int}


def test_a_sampler_that_refuses_somebody_ends_that_request_only(folder: Path):
    class Picky(Sampler):
        def admit(self, row, number, params):
            if number == 1:
                raise LookupError("not you")
            super().admit(row, number, params)

    with make(folder, sampler=Picky(0)) as llm:
        good, bad = llm.generate([LONG, SHORT], PARAMS)
        assert len(good.token_ids) == 5 and bad.error and "not you" in bad.error
        check_serves(llm)


def test_a_sampler_that_returns_too_few_tokens_is_told(folder: Path):
    class Short(Sampler):
        def __call__(self, logits, rows, positions):
            chosen = super().__call__(logits, rows, positions)
            return chosen._replace(tokens=chosen.tokens[1:])

    with make(folder, sampler=Short(0)) as llm:
        (output,) = llm.generate(SHORT, PARAMS)
        assert output.error and "chose 0 tokens for 1 rows" in output.error
        check_idle(llm)


def test_attention_that_always_raises_ends_everybody_with_its_words(folder: Path):
    class Broken(TorchPagedAttention):
        def __call__(self, *arguments):
            raise RuntimeError("no kernel today")

    with make(folder, decode_attention=Broken()) as llm:
        outputs = llm.generate([LONG, SHORT], PARAMS)
        assert all(o.error and "no kernel today" in o.error for o in outputs)
        assert [len(o.token_ids) for o in outputs] == [1, 1], "the prompts went through"
        check_idle(llm)


# --- what mutants of the implementation showed to be untested -----------------------------------


def test_a_preempted_request_has_computed_nothing():
    """Invariant 2: a preemption resets what counts as computed, from that moment on."""
    harness = Harness()
    request = harness.submit(range(10), max_tokens=5)
    harness.step()
    assert request.num_computed == 10
    harness.scheduler.preempt(request, harness.now)
    assert request.num_computed == request.num_scheduled == 0
    harness.run()


def test_a_stop_token_that_spells_something_is_not_told(folder: Path):
    """Its id is among the output, its text is not."""
    with make(folder) as llm:
        (plain,) = llm.generate(SHORT, PARAMS)
        last = plain.token_ids[0]
        assert llm.tokenizer.decode([last])
        (output,) = llm.generate(SHORT, SamplingParams(max_tokens=5, stop_token_ids=(last,)))
        assert output.token_ids == [last] and output.text == ""
        assert output.finish_reason is FinishReason.STOP


def test_a_mixed_step_is_laid_out_once_for_all_layers(folder: Path, monkeypatch):
    """Decodes and chunks took turns in one part's memory of its last batch: a layout a layer."""
    from minicache.attention import paged

    layouts = []
    real = paged.plan_batch
    monkeypatch.setattr(paged, "plan_batch", lambda *a: layouts.append(1) or real(*a))
    with make(folder) as llm:
        llm.engine.submit(SHORT, PARAMS)
        llm.engine.step()
        llm.engine.submit(LONG, PARAMS)
        layouts.clear()
        llm.engine.step()
        (record,) = list(llm.engine.trace.steps)[-1:]
        assert (record.num_decodes, record.prefill_tokens) == (1, 20)
        assert len(layouts) == 2
