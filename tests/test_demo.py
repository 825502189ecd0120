"""The demo, on a fake machine whose steps cost what one can work out by hand."""

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from tiny_tokenizers import byte_level

from minicache.core import EngineCore
from minicache.demo import Options, cast, document, frame, show
from minicache.demo.drive import drive
from minicache.demo.interrupt import Interrupt
from minicache.demo.numbers import Comparison, Numbers, measure
from minicache.demo.people import Part, arrange
from minicache.demo.printable import one_line, printable
from minicache.demo.serving import NUM_PAGES, Run, Served
from minicache.demo.stage import Mood, Stage
from minicache.demo.verdict import verdict
from minicache.engine import Engine
from minicache.page_pool import PagePool
from minicache.plan import StepPlan, StepResult
from minicache.policy import BATCHING
from minicache.request import SamplingParams
from minicache.scheduler import Scheduler, SchedulerConfig
from minicache.tokenizer import Tokenizer
from minicache.trace import Trace

STEP, TOKEN = 0.010, 0.001
"""Seconds that a step costs, and each of its tokens."""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Machine:
    """Virtual time, and an executor on it that says 'a' to everybody."""

    max_in_flight = 1

    def __init__(self) -> None:
        self.now = 100.0
        self.plan: StepPlan | None = None
        self.on_step: Callable[[int], None] = lambda step: None
        self.failing: set[int] = set()

    def clock(self) -> float:
        return self.now

    def idle(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def submit(self, plan: StepPlan) -> None:
        self.plan = plan

    def collect(self) -> StepResult:
        plan = self.plan
        assert plan is not None
        start, self.now = self.now, self.now + STEP + TOKEN * plan.num_tokens
        self.on_step(plan.step)
        errors = {i.number: "the disk is on fire" for i in plan.items if plan.step in self.failing}
        tokens = [VOCABULARY["a"] for item in plan.items if item.samples]
        return StepResult(plan.step, tokens, start, self.now, {}, errors)

    def close(self) -> None:
        pass


VOCABULARY = byte_level().get_vocab()


def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=TEMPLATE)


def engine_on(machine: Machine, whole: bool, policy: str = "mixed", budget: int = 64) -> Engine:
    pool = PagePool(NUM_PAGES, prefix_caching=False, debug=True)
    config = SchedulerConfig(4, budget, NUM_PAGES * 16, chunked_prefill=not whole)
    scheduler = Scheduler(pool, config, BATCHING[policy]())
    trace = Trace("a fake machine")
    return Engine(EngineCore(scheduler, pool, machine, trace, machine.clock), tokenizer())


class Opened:
    """An opener of engines on one machine, which remembers what it opened."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.engines: list[Engine] = []
        self.closed = 0

    @contextmanager
    def __call__(self, options: Options, run: Run) -> Iterator[Served]:
        whole = run is Run.BEFORE
        policy = "mixed" if whole else options.policy
        engine = engine_on(self.machine, whole, policy, options.max_num_batched_tokens)
        self.engines.append(engine)
        yield Served(engine, engine.tokenizer, len(VOCABULARY))
        self.closed += 1


def plain() -> Console:
    return Console(file=io.StringIO(), width=100)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def played(folder: Path, machine: Machine | None = None, **asked: object):
    """Run the demo on a machine; returns exit code, what was printed, the numbers, the engines."""
    machine = machine or Machine()
    options = replace(Options(out=folder / "out", json=folder / "numbers.json"), **asked)
    console, opened = plain(), Opened(machine)
    code = show(options, console, opened, machine.idle)
    file = folder / "numbers.json"
    numbers = json.loads(file.read_text()) if file.exists() else None
    return code, printed(console), numbers, opened


def test_chunks_shorten_the_silence_by_as_much_as_the_arithmetic_says(tmp_path: Path):
    code, text, numbers, opened = played(tmp_path, max_num_batched_tokens=64)
    assert code == 0 and opened.closed == 2
    before, after, ratio = numbers["before"], numbers["after"], numbers["ratio"]
    long = len(opened.engines[0].trace.requests) - 1
    prompt = opened.engines[0].trace.requests[long].prompt_tokens
    assert before["worst_gap_s"] == pytest.approx(STEP + TOKEN * (prompt + 3))
    assert after["worst_gap_s"] == pytest.approx(STEP + TOKEN * 64)
    assert ratio["worst_gap_s"] == pytest.approx(after["worst_gap_s"] / before["worst_gap_s"])
    assert 1.0 < ratio["ttft_long_s"] < 1.5
    assert before["chats_during_long"] == after["chats_during_long"] == 3
    assert before["output_tokens"] == after["output_tokens"] == 3 * 144 + 48
    assert f"{1 / ratio['worst_gap_s']:.1f} times shorter" in " ".join(text.split())


def test_both_runs_get_the_same_people_at_the_same_times(tmp_path: Path):
    _, _, _, opened = played(tmp_path, max_num_batched_tokens=64)
    first, second = (
        [(r.id, r.prompt_tokens, r.arrival - e.trace.requests[0].arrival) for r in e.trace.requests]
        for e in opened.engines
    )
    assert [row[:2] for row in first] == [row[:2] for row in second]
    assert [row[2] for row in first] == pytest.approx([row[2] for row in second])
    assert first[-1][0] == "Dana" and first[-1][1] > 4096


def test_the_pool_is_whole_after_each_run(tmp_path: Path):
    _, _, _, opened = played(tmp_path)
    for engine in opened.engines:
        engine.pool.check()
        assert engine.pool.num_free == engine.pool.num_pages


def test_the_document_is_the_engines_own_source_in_whole_lines():
    encode = cast.encoder(tokenizer(), len(VOCABULARY))
    long = cast.parts(encode, 8192)[-1]
    assert 4096 < len(long.prompt) <= cast.DOCUMENT_TOKENS
    said = tokenizer().decode(long.prompt)
    assert "=== request.py ===" in said and "class Request" in said
    assert said.rstrip().endswith("assistant")


def test_cut_keeps_as_many_whole_lines_as_fit():
    assert document.cut("a\nbb\nccc\n", 5, len) == "a\nbb\n"
    assert document.cut("a\nbb\nccc\n", 4, len) == "a\n"
    assert document.cut("a\nbb\nccc\n", 100, len) == "a\nbb\nccc\n"
    assert document.cut("a\nbb\n", 1, len) == ""


def test_a_small_context_gets_a_document_that_fits():
    encode = cast.encoder(tokenizer(), len(VOCABULARY))
    long = cast.parts(encode, 1000)[-1]
    assert 800 < len(long.prompt) <= 1000 - long.params.max_tokens


def test_random_weights_without_a_tokenizer_get_bytes():
    encode = cast.encoder(None, 100)
    assert encode("é~") == [195 % 100, 169 % 100, 126 % 100]


def test_the_document_arrives_when_all_chats_talk():
    parts = [Part(name, [1], SamplingParams()) for name in "abc"]
    parts.append(Part("long", [1], SamplingParams(), is_long=True))
    arrivals = [part.arrival for part in arrange(parts, 0.5)]
    assert arrivals == sorted(arrivals) and arrivals[0] == 0.0
    assert arrivals[3] - arrivals[2] == 36 * 0.5


@pytest.mark.parametrize("policy", sorted(BATCHING))
def test_every_policy_runs_and_is_told_honestly(tmp_path: Path, policy: str):
    code, text, numbers, _ = played(tmp_path, policy=policy, max_num_batched_tokens=64)
    text = " ".join(text.split())
    assert code == 0 and f"2 of 2 – {policy.capitalize()}, budget 64" in text
    if policy == "static":
        assert "waited" in text and numbers["ratio"]["ttft_short_s"] > 2
    if policy == "prefill-first":
        assert "did not help" in text and numbers["ratio"]["worst_gap_s"] > 1


def test_plain_text_has_no_escapes_and_every_event_once(tmp_path: Path):
    _, text, _, _ = played(tmp_path)
    assert "\x1b" not in text
    assert text.count("Dana: arrives with") == 2
    assert text.count("Dana: is being read") == 1, "once, in the run with chunks"
    assert text.count("Ada: gets the first token") == 2
    assert text.count("Ada: done, 144 tokens") == 2
    assert "aaaaaaaaaa" in text


def test_what_a_terminal_would_obey_is_not_printed():
    assert printable("a\x1b[2Jb\x9b\tc\né日") == "a\ufffd[2Jb\ufffd\tc\né日"
    assert one_line(" a\r\n\x07 b ") == "a\ufffd \ufffd b"


def test_ctrl_c_cancels_frees_and_reports(tmp_path: Path):
    before = signal.getsignal(signal.SIGINT)
    machine = Machine()
    machine.on_step = lambda step: os.kill(os.getpid(), signal.SIGINT) if step == 40 else None
    code, text, numbers, opened = played(tmp_path, machine)
    assert code == 130
    assert len(opened.engines) == 1, "the second run does not start"
    engine = opened.engines[0]
    assert engine.pool.num_free == engine.pool.num_pages and not engine.has_work
    cancelled = numbers["before"]["cancelled"]
    assert cancelled == 3 and numbers["before"]["output_tokens"] > 0
    assert f"{cancelled} requests were cancelled, and {NUM_PAGES} of {NUM_PAGES}" in text
    assert numbers["after"]["worst_gap_s"] is None and numbers["ratio"]["worst_gap_s"] is None
    assert (tmp_path / "out" / "timeline.svg").exists()
    assert signal.getsignal(signal.SIGINT) == before


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path):
    before = signal.getsignal(signal.SIGINT)
    machine = Machine()

    def twice(step: int) -> None:
        if step == 40:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    machine.on_step = twice
    with pytest.raises(KeyboardInterrupt):
        played(tmp_path, machine)
    assert signal.getsignal(signal.SIGINT) == before


def test_ctrl_c_in_the_second_run_keeps_the_first(tmp_path: Path):
    machine = Machine()
    runs = Opened(machine)
    machine.on_step = lambda step: (
        os.kill(os.getpid(), signal.SIGINT) if step == 60 and len(runs.engines) == 2 else None
    )
    options = Options(out=tmp_path, json=tmp_path / "n.json")
    assert show(options, plain(), runs, machine.idle) == 130
    numbers = json.loads((tmp_path / "n.json").read_text())
    assert numbers["before"]["completed"] == 4 and numbers["after"]["cancelled"] == 4


def test_a_failed_step_is_told_and_fails(tmp_path: Path):
    machine = Machine()
    machine.failing = {60}
    code, text, numbers, _ = played(tmp_path, machine)
    assert code == 1
    assert "request failed: the disk is on fire" in text
    assert numbers["before"]["failed"] > 0


def test_the_json_has_the_promised_keys(tmp_path: Path):
    _, _, numbers, _ = played(tmp_path, policy="alternating", max_num_batched_tokens=128)
    promised = {
        "worst_gap_s",
        "ttft_long_s",
        "ttft_short_s",
        "itl_p50_s",
        "itl_p99_s",
        "output_tokens_per_s",
    }
    for part in ("before", "after", "ratio"):
        assert promised <= numbers[part].keys()
    assert numbers["policy"] == "alternating" and numbers["max_num_batched_tokens"] == 128
    assert numbers["source"] == "a fake machine"


def test_perfetto_has_both_runs_from_time_zero_on_tracks_of_their_own(tmp_path: Path):
    played(tmp_path)
    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"before: engine", "after: requests"} <= names
    for processes in ((1, 2), (3, 4)):
        times = [e["ts"] for e in events if "ts" in e and e["pid"] in processes]
        assert min(times) == 0
    slices = sorted(
        ((e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"),
        key=lambda s: (s[0], s[1], s[2], -s[3]),
    )
    for (p, t, _, stop), (q, u, start, end) in pairwise(slices):
        assert (p, t) != (q, u) or start >= stop or end <= stop, "slices of a track nest"


def test_a_live_terminal_gets_a_moving_picture(tmp_path: Path):
    machine = Machine()
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    show(Options(out=tmp_path), console, Opened(machine), machine.idle)
    text = printed(console)
    assert "1 of 2 – Whole" in text and "2 of 2 – Mixed" in text and "\x1b[" in text


def staged(machine: Machine) -> Stage:
    """A stage with a silent chat, a document that is being read, and two that are not there yet."""
    engine = engine_on(machine, whole=False)
    parts = cast.parts(cast.encoder(tokenizer(), len(VOCABULARY)), 8192)
    stage = Stage("a title", parts, machine.now)
    for part in (parts[0], parts[3]):
        engine.submit(part.prompt, part.params, id=part.name)
        stage.arrive(part.name, engine.trace)
    for _ in range(12):
        stage.note(engine.trace, engine.step())
    return stage


@pytest.mark.parametrize("width", [80, 120])
def test_a_frame_fits_its_terminal(width: int):
    machine = Machine()
    stage = staged(machine)
    console = Console(file=io.StringIO(), width=width)
    console.print(frame.frame(stage, machine.now + 2.0, width, 2))
    lines = printed(console).splitlines()
    assert len(lines) == frame.height(4, 2) and {len(line) for line in lines} == {width}
    text = "\n".join(lines)
    assert "silent for 2.0 s" in text and "being read," in text and "not here yet" in text
    assert "pages in use" in text and "1 decode" in text and "prefill of 64 tokens" in text


def test_the_stage_agrees_with_the_metrics(tmp_path: Path):
    machine = Machine()
    engine = engine_on(machine, whole=False)
    parts = arrange(cast.parts(cast.encoder(tokenizer(), len(VOCABULARY)), 8192), 0.02)
    watcher = Watching()
    with Interrupt() as interrupt:
        stage = drive(engine, "a title", parts, watcher, interrupt, machine.idle)
    numbers = measure(engine.trace, parts)
    chats = [lane for lane in stage.lanes.values() if not lane.part.is_long]
    assert max(lane.worst_gap for lane in chats) == pytest.approx(numbers.worst_gap_s)
    assert all(lane.mood is Mood.DONE for lane in stage.lanes.values())
    assert [lane.num_outputs for lane in stage.lanes.values()] == [144, 144, 144, 48]
    assert watcher.calls == ["begin", "end"] and watcher.looks > 100


class Watching:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.looks = 0

    def begin(self, stage: Stage, engine: Engine) -> None:
        self.calls.append("begin")

    def look(self, stage: Stage, now: float) -> None:
        self.looks += 1

    def end(self, stage: Stage, now: float) -> None:
        self.calls.append("end")


def numbers(**changes: object) -> Numbers:
    usual = Numbers(4.0, 4.2, 0.1, 0.02, 0.5, 50.0, 9.0, 400, 4, 0, 0, 3)
    return replace(usual, **changes)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"worst_gap_s": 0.2, "ttft_long_s": 4.62}, ("20.0 times shorter", "10% later")),
        ({"worst_gap_s": 3.0}, ("helped only a little",)),
        ({"worst_gap_s": 4.1}, ("did not help",)),
        ({"worst_gap_s": 0.2, "ttft_long_s": 4.0}, ("cost the document nothing",)),
        ({"worst_gap_s": 0.2, "ttft_short_s": 0.5}, ("waited 500 ms", "not 100 ms")),
        ({"worst_gap_s": None}, ("stopped too early",)),
    ],
)
def test_the_verdict_is_honest(after: dict[str, object], words: tuple[str, ...]):
    text = verdict(Comparison(numbers(), numbers(**after)))
    assert all(word in text for word in words), text


def test_the_verdict_without_a_freeze_or_a_run():
    assert "had ended before" in verdict(Comparison(numbers(chats_during_long=0), numbers()))
    assert "nothing to tell" in verdict(Comparison(None, None))
    assert "stopped too early" in verdict(Comparison(numbers(), None))


@pytest.mark.parametrize("budget", [0, -1, 3])
def test_a_budget_that_cannot_hold_everybody_is_refused_at_once(budget: int):
    with pytest.raises(ValueError, match=rf"max_num_batched_tokens is {budget}, .* at least 4"):
        Options(max_num_batched_tokens=budget)


def test_an_unknown_policy_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="'random'.*static, prefill-first, alternating, mixed"):
        Options(policy="random")


def test_a_signal_that_was_ignored_is_ignored_again():
    """A background job starts with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
