"""What the scheduler promises: steps, chunks, budgets, refusals, endings, plans that are exact."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from fake_executor import EOS, Harness, expected, next_token

from minicache.page_pool import PagePool
from minicache.plan import Admission, PageEntry, StepResult
from minicache.policy import Priority, Static, Work
from minicache.request import FinishReason, Request, RequestRefused, RequestState, SamplingParams
from minicache.scheduler import EventKind, Scheduler, SchedulerConfig, SchedulerStalled


def spans(harness: Harness, request: Request) -> list[tuple[int, int, bool]]:
    """Start, stop and whether it samples, of each of a request's items."""
    return [
        (item.start, item.stop, item.samples)
        for plan in harness.plans
        for item in plan.items
        if item.number == request.number
    ]


both_depths = pytest.mark.parametrize("max_in_flight", [1, 2])


# --- configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"max_num_batched_tokens": -1}, "max_num_batched_tokens is -1"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"max_in_flight": 0}, "max_in_flight is 0"),
        ({"max_num_batched_tokens": 3}, "max_num_batched_tokens is 3.*max_num_seqs = 4.*raise"),
        ({"watermark": 1.0}, "watermark is 1.0"),
        ({"watermark": -0.1}, "watermark is -0.1"),
        ({"watermark": float("nan")}, "watermark is nan"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(change, words):
    good = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=8, max_model_len=100)
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(good, **change)


def test_the_largest_step_is_known_beforehand():
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=8, max_model_len=100)
    assert config.max_step_tokens == 8
    assert dataclasses.replace(config, chunked_prefill=False).max_step_tokens == 103


def test_no_torch_is_loaded():
    """Scheduler, pool and policies load in a blink."""
    code = "import sys, minicache.scheduler, minicache.policy; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "prompt is empty; give at least one token"),
        (range(100), "100 tokens.*context holds 100; shorten the prompt to 99 tokens or raise"),
        (
            range(64),
            r"64 tokens.*page pool stores 64 \(16 pages of 4\); shorten the prompt or give",
        ),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_whole(prompt, words):
    """vllm#7283, vllm#7632 (empty prompt), vllm#39734, vllm#35541, dynamo#10439 (over the pool)."""
    harness = Harness(num_pages=16, max_model_len=100)
    with pytest.raises(RequestRefused, match=words) as refusal:
        harness.submit(prompt)
    assert str(refusal.value).count(".") == 1  # one sentence
    assert not harness.scheduler.has_work and harness.pool.num_free == 16
    short = harness.submit([1, 2, 3])
    harness.run()
    assert short.number == 0 and short.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("length", [62, 63])
def test_the_longest_prompts_that_fit_the_pool_are_served(length):
    harness = Harness(num_pages=16)
    request = harness.submit(range(length), max_tokens=1)
    harness.run()
    assert request.finish_reason is FinishReason.LENGTH


def test_the_longest_prompt_that_fits_the_context_is_served():
    harness = Harness(max_model_len=30)
    request = harness.submit(range(29), max_tokens=50)
    harness.run()
    assert request.num_outputs == 1 and request.finish_reason is FinishReason.LENGTH


def test_an_id_in_use_is_refused_and_its_owner_unharmed():
    """vllm#10583, vllm#15041: the same id twice hung or crashed the engine."""
    harness = Harness()
    first = harness.submit([1, 2, 3], id="same")
    harness.step()
    with pytest.raises(RequestRefused, match="'same' belongs to a request that is still open"):
        harness.submit([4, 5], id="same")
    harness.run()
    assert first.finish_reason is FinishReason.LENGTH
    again = harness.submit([4, 5], id="same")
    harness.run()
    assert again.number == 1 and again.finish_reason is FinishReason.LENGTH


def test_a_request_object_is_submitted_once():
    harness = Harness()
    request = harness.submit([1, 2])
    harness.run()
    with pytest.raises(RequestRefused, match="submitted before"):
        harness.scheduler.submit(request, 0.0)


# --- chunks ------------------------------------------------------------------------------------


@both_depths
@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33])
def test_a_prompt_is_cut_by_the_budget_and_sampled_once(budget, max_in_flight):
    """vllm#7380, imp#114: chunks cover the prompt once; the last one, and only it, samples."""
    harness = Harness(max_num_seqs=1, max_num_batched_tokens=budget, max_in_flight=max_in_flight)
    request = harness.submit(range(32), max_tokens=1)
    harness.run()
    starts = range(0, 32, budget)
    wanted = [(start, min(start + budget, 32), start + budget >= 32) for start in starts]
    assert spans(harness, request) == wanted
    assert request.outputs == expected(range(32), 1)


def test_a_chunk_takes_what_is_left_of_the_budget():
    """aisimulate#285, aisimulate#289: 12 decodes and a budget of 16 leave a chunk of 4."""
    harness = Harness(num_pages=100, max_num_seqs=13, max_num_batched_tokens=16)
    for i in range(12):
        harness.submit([i], max_tokens=20)
    harness.step()
    long = harness.submit(range(100, 140), max_tokens=1)
    for _ in range(5):
        harness.step()
    assert [stop - start for start, stop, _ in spans(harness, long)] == [4] * 5
    assert {plan.num_tokens for plan in harness.plans[1:]} == {16}


def test_running_prompts_go_before_waiting_ones():
    harness = Harness(max_num_batched_tokens=10)
    first, second = harness.submit(range(15), 1), harness.submit(range(50, 60), 1)
    harness.run()
    assert spans(harness, first) == [(0, 10, False), (10, 15, True)]
    assert spans(harness, second) == [(0, 5, False), (5, 10, True)]


def test_decodes_come_before_chunks_each_in_order_of_admission():
    harness = Harness(max_num_batched_tokens=12)
    a, b = harness.submit([1, 2], 9), harness.submit([3, 4], 9)
    harness.step()
    c, d = harness.submit(range(10, 14), 9), harness.submit(range(20, 40), 9)
    plan = harness.schedule()
    assert plan is not None and plan.num_decodes == 2
    assert [item.number for item in plan.items] == [a.number, b.number, c.number, d.number]
    harness.update()
    harness.run()


# --- whole prompts -----------------------------------------------------------------------------


@both_depths
def test_without_chunking_a_prompt_runs_whole_and_lifts_the_budget(max_in_flight):
    """The 'before' of the demo: one step, whatever the length, together with the decodes."""
    harness = Harness(chunked_prefill=False, max_num_batched_tokens=8, max_in_flight=max_in_flight)
    chat = harness.submit([1, 2, 3], max_tokens=12)
    harness.step()
    harness.step()
    long = harness.submit(range(10, 60), max_tokens=2)
    harness.run()
    assert spans(harness, long)[0] == (0, 50, True)
    (plan,) = [plan for plan in harness.plans if plan.num_tokens > 8]
    assert plan.num_decodes == 1 and plan.num_tokens == plan.budget == 51
    assert plan.num_tokens <= harness.config.max_step_tokens
    assert chat.num_outputs == 12


def test_without_chunking_further_prompts_must_fit_in_what_is_left():
    harness = Harness(chunked_prefill=False, max_num_batched_tokens=10)
    prompts = [harness.submit(range(i, i + n), 1) for i, n in ((0, 6), (20, 4), (40, 5), (60, 30))]
    harness.run()
    steps = [[item.number for item in plan.items] for plan in harness.plans]
    numbers = [prompt.number for prompt in prompts]
    assert steps == [numbers[:2], numbers[2:3], numbers[3:]]
    assert [plan.budget for plan in harness.plans] == [10, 10, 30]


def test_without_chunking_a_long_prompt_is_not_overtaken():
    harness = Harness(chunked_prefill=False, max_num_batched_tokens=10)
    short, long, late = (harness.submit(range(i, i + n), 1) for i, n in ((0, 6), (20, 30), (60, 2)))
    harness.run()
    assert [[item.number for item in plan.items] for plan in harness.plans] == [
        [short.number],
        [long.number],
        [late.number],
    ]


def test_without_chunking_a_resumed_request_is_whole_too():
    harness = Harness(
        chunked_prefill=False, num_pages=6, max_num_batched_tokens=8, prefix_caching=False
    )
    a, b = harness.submit(range(8), 12), harness.submit(range(20, 28), 12)
    harness.run()
    assert b.num_preemptions >= 1 and a.num_preemptions == 0
    resumed = [span for span in spans(harness, b) if span[0] == 0]
    assert all(samples for _, _, samples in resumed)
    assert resumed[1][1] > 8  # prompt and outputs in one piece


# --- endings -----------------------------------------------------------------------------------


@both_depths
def test_max_tokens_ends_with_length_and_nothing_is_planned_beyond(max_in_flight):
    harness = Harness(max_in_flight=max_in_flight)
    request = harness.submit([1, 2, 3], max_tokens=5)
    harness.run()
    assert request.finish_reason is FinishReason.LENGTH
    assert request.outputs == expected([1, 2, 3], 5)
    assert spans(harness, request)[-1] == (6, 7, True)  # the last token is never fed back


@both_depths
def test_the_context_ends_with_length(max_in_flight):
    harness = Harness(max_model_len=20, max_in_flight=max_in_flight)
    request = harness.submit(range(15), max_tokens=1000)
    harness.run()
    assert len(request.tokens) == 20 and request.finish_reason is FinishReason.LENGTH


@both_depths
def test_an_end_of_sequence_token_ends_with_stop(max_in_flight):
    harness = Harness(eos_every=4, max_in_flight=max_in_flight)
    requests = [harness.submit([i, i], max_tokens=60) for i in range(20, 28)]
    harness.run()
    assert {request.finish_reason for request in requests} == {FinishReason.STOP}
    assert all(r.outputs[-1] == EOS and EOS not in r.outputs[:-1] for r in requests)


@both_depths
def test_a_token_in_flight_behind_the_last_is_dropped(max_in_flight):
    """End-of-sequence is known only when the next step has been planned: its token is lost."""
    harness = Harness(eos_every=4, max_in_flight=max_in_flight)
    request = harness.submit([20, 20], max_tokens=60)
    harness.run()
    planned = sum(samples for _, _, samples in spans(harness, request))
    assert planned == request.num_outputs + (max_in_flight - 1)
    assert [token for _, token, _ in harness.tokens] == request.outputs


def test_end_of_sequence_can_be_ignored():
    harness = Harness(eos_every=2)
    request = harness.submit([20, 20], max_tokens=20, ignore_eos=True)
    while harness.scheduler.has_work:
        harness.step()
    assert request.num_outputs == 20 and EOS in request.outputs


def test_stop_tokens_of_the_request_end_it():
    stop = expected([1, 2, 3], 3)[-1]
    harness = Harness()
    request = harness.submit([1, 2, 3], max_tokens=20, stop_token_ids=(5, stop))
    while harness.scheduler.has_work:
        harness.step()
    assert request.outputs == expected([1, 2, 3], 3)
    assert request.finish_reason is FinishReason.STOP


@both_depths
def test_the_caller_may_finish_a_request_for_its_own_reason(max_in_flight):
    harness = Harness(max_in_flight=max_in_flight)
    request, other = harness.submit([1, 2], 20), harness.submit([3, 4], 20)
    while request.num_outputs < 3:
        harness.step()
    harness.scheduler.finish(request, FinishReason.STOP, harness.now)
    harness.scheduler.finish(request, FinishReason.ERROR, harness.now)  # too late: ignored
    harness._take_events()
    outputs = request.outputs
    while harness.scheduler.has_work:
        harness.step()
    assert request.outputs == outputs and request.finish_reason is FinishReason.STOP
    assert other.num_outputs == 20 and harness.pool.num_held == 0


def test_token_events_mark_the_last_token():
    harness = Harness()
    request = harness.submit([1, 2], max_tokens=3)
    harness.run()
    assert [(e.token, e.finished) for e in harness.tokens] == list(
        zip(request.outputs, [False, False, True], strict=True)
    )


def test_events_tell_a_life_in_order():
    harness = Harness(num_pages=6, prefix_caching=False)
    harness.submit(range(8), max_tokens=12)
    b = harness.submit(range(20, 28), max_tokens=12)
    harness.run()
    life = [event.kind for event in harness.events if event.request is b]
    preempted = [EventKind.PREEMPTED, EventKind.ADMITTED] * b.num_preemptions
    assert life == [EventKind.ADMITTED, *preempted, EventKind.FINISHED] and b.num_preemptions
    times = [event.time for event in harness.events]
    assert times == sorted(times)


# --- plans -------------------------------------------------------------------------------------


def test_a_plan_says_exactly_what_changed():
    harness = Harness(page_size=4, max_num_batched_tokens=8)
    request = harness.submit([1, 2, 3, 4, 5, 6], max_tokens=4)
    plans = [harness.schedule() or pytest.fail("nothing planned")]
    harness.update()
    while harness.scheduler.has_work:
        plans += [harness.schedule() or pytest.fail("nothing planned")]
        harness.update()
    assert [plan.step for plan in plans] == [0, 1, 2, 3]
    assert plans[0].admissions == [Admission(0, 0, request.params)]
    assert plans[0].items[0] == (0, 0, 0, 6, True, [1, 2, 3, 4, 5, 6])
    assert [plan.admissions for plan in plans[1:]] == [[], [], []]
    assert [plan.entries for plan in plans] == [
        [PageEntry(0, 0, 0), PageEntry(0, 1, 1)],
        [],
        [],
        [PageEntry(0, 2, 2)],
    ]


def test_shared_pages_are_entered_at_admission():
    harness = Harness(page_size=4, max_num_batched_tokens=32)
    first = harness.submit(range(12), max_tokens=2)
    harness.step()
    second = harness.submit([*range(8), 99], max_tokens=1)
    shared = list(first.pages[:2])
    plan = harness.schedule()
    assert plan is not None
    assert [entry[1:] for entry in plan.entries if entry.row == second.row][:2] == [
        (0, shared[0]),
        (1, shared[1]),
    ]
    assert spans(harness, second) == [(8, 9, True)] and second.num_cached == 8
    harness.update()
    harness.run()


def test_input_tokens_in_flight_are_left_to_the_executor():
    harness = Harness(max_in_flight=2)
    harness.submit([1, 2, 3], max_tokens=3)
    first, second = harness.schedule(), harness.schedule()
    assert first is not None and second is not None
    assert second.items[0][2:] == (3, 4, True, ())
    assert harness.scheduler.schedule(0.0) is None  # two in flight are enough
    harness.update()
    third = harness.schedule()
    assert third is not None and third.items[0][2:] == (4, 5, True, ())
    harness.run()


def test_results_must_come_in_order_and_whole():
    harness = Harness(max_in_flight=2)
    harness.submit([1, 2, 3], max_tokens=9)
    first, second = harness.scheduler.schedule(0.0), harness.scheduler.schedule(0.0)
    assert first is not None and second is not None
    result = StepResult(1, [5], 0.0, 1.0, {}, {})
    with pytest.raises(ValueError, match="oldest in flight is 0; collect steps in the order"):
        harness.scheduler.update(second, result)
    with pytest.raises(ValueError, match="result of step 1 for step 0"):
        harness.scheduler.update(first, result)
    with pytest.raises(ValueError, match="samples 1 tokens, but its result has 2; give one for"):
        harness.scheduler.update(first, StepResult(0, [5, 6], 0.0, 1.0, {}, {}))
    assert harness.scheduler.update(first, StepResult(0, [5], 0.0, 1.0, {}, {}))[0].token == 5


# --- looking in --------------------------------------------------------------------------------


def test_stored_tokens_are_counted_once_however_many_share_them():
    harness = Harness(page_size=4, max_num_batched_tokens=32)
    a = harness.submit(range(10), max_tokens=9)
    harness.step()
    assert harness.scheduler.num_stored_tokens == a.num_computed == 10
    b = harness.submit([*range(8), 99], max_tokens=9)
    harness.step()
    assert (a.num_computed, b.num_computed) == (11, 9)
    assert harness.scheduler.num_stored_tokens == 11 + 1
    harness.run()
    assert harness.scheduler.num_stored_tokens == 0


def test_a_policy_that_never_runs_anybody_raises_with_a_dump():
    """Invariant 5: empty steps with live work must not go on for ever."""

    class Idle:
        def attempts(self, situation):
            return (Work.DECODE,)

    harness = Harness(batching=Idle())
    harness.submit([1, 2, 3], id="forgotten")
    with pytest.raises(SchedulerStalled, match="Idle batching: 0 running, 1 waiting") as stall:
        for _ in range(100):
            harness.schedule()
    assert "Request('forgotten', waiting, prompt 3" in str(stall.value)


def test_empty_steps_between_others_are_no_stall():
    """A policy may wait for a while, say until a batch is worth it: only a row of them counts."""

    class Hesitant:
        def __init__(self):
            self.calls = 0

        def attempts(self, situation):
            self.calls += 1
            return () if self.calls % 8 else (Work.DECODE | Work.ADMIT,)

    harness = Harness(batching=Hesitant())
    request = harness.submit([1, 2, 3], max_tokens=20)
    harness.run()
    assert request.num_outputs == 20 and harness.batching.calls == 160


def test_waiting_for_a_step_in_flight_is_no_stall():
    harness = Harness(max_in_flight=2, batching=Static(), max_num_seqs=1)
    harness.submit([1, 2, 3], max_tokens=1)
    harness.submit([4, 5], max_tokens=1)
    harness.schedule()
    for _ in range(100):
        assert harness.schedule() is None
    harness.update()
    harness.run()


def test_an_empty_engine_is_no_stall():
    scheduler = Scheduler(PagePool(4), SchedulerConfig(2, 4, 100))
    for _ in range(100):
        assert scheduler.schedule(0.0) is None
    assert not scheduler.has_work and scheduler.take_events() == []


# --- the fake itself ---------------------------------------------------------------------------


def test_the_fake_notices_foreign_tokens():
    """A test of the tests: what the harness claims to see, it must see."""
    harness = Harness(num_pages=4, page_size=4)
    request = harness.submit(range(5), max_tokens=5)
    harness.step()
    harness.executor.poison(request.pages[:1])
    with pytest.raises(AssertionError, match="stale data at 0"):
        harness.step()


def test_the_fake_notices_early_reuse():
    harness = Harness(num_pages=4, page_size=4, max_in_flight=2)
    harness.submit(range(3), max_tokens=5)
    plan = harness.schedule()
    assert plan is not None
    other = plan.items[0]._replace(number=9, row=1)
    thief = plan._replace(step=1, items=[other], admissions=[Admission(1, 9, SamplingParams())])
    thief = thief._replace(entries=[PageEntry(1, 0, plan.entries[0].page)])
    with pytest.raises(AssertionError, match="reused"):
        harness.executor.submit(thief)


def test_the_fake_depends_on_every_token():
    assert next_token([1, 2, 3]) != next_token([1, 3, 2]) != next_token([1, 2])


def test_states_of_a_request():
    harness = Harness(num_pages=6, prefix_caching=False)
    a, b = harness.submit(range(8), 12), harness.submit(range(20, 28), 12)
    seen = {b.state}
    while harness.scheduler.has_work:
        harness.step()
        seen.add(b.state)
    assert seen == set(RequestState) and a.finished


def test_who_gives_way_may_come_back_in_the_same_step_on_shared_pages():
    """Its own copy of a page that another stores too is freed, and then holds its next token."""
    harness = Harness(
        num_pages=4, page_size=1, max_num_seqs=3, max_num_batched_tokens=3, order=Priority()
    )
    for _ in range(3):
        harness.submit([0], max_tokens=1)
    gives_way = harness.submit([0], max_tokens=2, priority=1)
    harness.submit([0, 0], max_tokens=2)
    harness.run()
    assert gives_way.num_preemptions == 1
    assert spans(harness, gives_way) == [(0, 1, True), (1, 2, True)]
    assert [plan.step for plan in harness.plans] == [0, 1, 2], "it lost no step by it"
