"""Faults that real engines had, each as a test of its kind. Docstrings name the public threads.

`Harness` checks accounting, budgets and stall-freedom after every step, poisons every page that
nobody holds, and compares all outputs with those of a run alone: many tests need few asserts.
"""

from __future__ import annotations

import logging
import random

import pytest
from fake_executor import Harness, expected

from minicache.plan import PlanItem
from minicache.policy import Fcfs, PrefillFirst, Priority, Static, Work
from minicache.request import FinishReason, Request, RequestRefused, RequestState
from minicache.scheduler import EventKind
from minicache.scheduler.draft import Draft

both_depths = pytest.mark.parametrize("max_in_flight", [1, 2])


def until(harness: Harness, condition, limit: int = 200) -> None:
    for _ in range(limit):
        if condition():
            return
        harness.step()
    raise AssertionError(harness.scheduler.dump())


def preempted(harness: Harness) -> list[Request]:
    return [event.request for event in harness.events if event.kind is EventKind.PREEMPTED]


# --- pages and rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 2, 3, 16])
@both_depths
def test_pages_are_those_of_the_stored_tokens(page_size, max_in_flight):
    """nano-vllm#240, nano-vllm#71, sparkinfer#110: one quantity, tokens stored, gives the pages.

    Prompts end one before, at and one behind an edge of a page, and grow across two more.
    """
    harness = Harness(num_pages=128, page_size=page_size, max_in_flight=max_in_flight)
    sizes = {max(1, pages * page_size + more) for pages in (1, 2) for more in (-1, 0, 1)}
    for i, length in enumerate(sorted(sizes)):
        harness.submit(range(100 * i, 100 * i + length), max_tokens=2 * page_size + 3)
    while harness.scheduler.has_work:
        harness.step()
        for request in harness.roster.running.values():
            assert len(request.pages) == -(-request.num_scheduled // page_size)
    harness.check_idle()


def test_growing_takes_only_the_difference():
    """sparkinfer#110, sparkinfer#33: growing from 100 to 200 tokens took 13 pages more, not 6."""
    harness = Harness(page_size=16, max_num_seqs=1, max_num_batched_tokens=100)
    request = harness.submit(range(200), max_tokens=1)
    harness.step()
    assert len(request.pages) == 7
    harness.schedule()
    assert len(request.pages) == 13
    columns = [entry.column for plan in harness.plans for entry in plan.entries]
    assert columns == list(range(13))
    harness.update()
    harness.check_idle()


@pytest.mark.parametrize("seed", range(20))
def test_any_split_of_a_prompt_takes_the_same_pages(seed):
    """inference-sim#197: progress in a page was indexed by the length after the append."""
    rng = random.Random(seed)
    harness = Harness(
        page_size=rng.choice([1, 3, 4, 16]), max_num_seqs=1, max_num_batched_tokens=50
    )
    request = harness.submit(range(45), max_tokens=1)
    while not request.finished:
        # The budget of each step is drawn anew.
        object.__setattr__(harness.config, "max_num_batched_tokens", rng.randint(1, 20))
        harness.max_num_batched_tokens = harness.config.max_num_batched_tokens
        harness.schedule()
        stored = request.num_scheduled
        assert len(request.pages) == -(-stored // harness.page_size)
        harness.update()
    harness.check_idle()


def test_a_row_forgets_its_last_owner():
    """sparkinfer#41, sparkinfer#185: a reused row kept the tail of the long request before.

    The fake executor refuses an entry that overwrites a column or leaves a hole, and a page number
    out of the pool, so what is left to see is that the row was really used again.
    """
    harness = Harness(max_num_seqs=1)
    long, short = harness.submit(range(40), 3), harness.submit([1, 2, 3], 3)
    harness.run()
    (first,) = harness.plans[0].admissions
    (again,) = [a for plan in harness.plans[1:] for a in plan.admissions]
    assert (first.row, first.number) == (0, long.number)
    assert (again.row, again.number) == (0, short.number)
    second = next(i for i, plan in enumerate(harness.plans) if again in plan.admissions)
    entries = [entry.page for plan in harness.plans[second:] for entry in plan.entries]
    assert harness.executor._table[0] == entries and len(entries) == 2


def test_no_row_is_longer_than_the_context():
    """flash-attention#2711: a length beyond the table's columns made a kernel read outside."""
    harness = Harness(num_pages=64, page_size=4, max_model_len=21)
    harness.submit(range(17), max_tokens=1000)
    harness.run()
    columns = [entry.column for plan in harness.plans for entry in plan.entries]
    assert max(columns) == 4  # 20 tokens stored in 5 pages: the 21st is never fed back


@both_depths
def test_pages_are_hittable_only_when_their_step_has_committed(max_in_flight):
    """vllm#43569: a page hashed before it was written, and an abort left garbage to be hit."""
    harness = Harness(max_num_batched_tokens=8, max_in_flight=max_in_flight)
    first = harness.submit(range(16), max_tokens=1)
    harness.schedule()
    harness.cancel(first)
    second = harness.submit(range(16), max_tokens=1)
    until(harness, lambda: second.finished)
    assert second.num_cached == 0 and second.outputs == expected(range(16), 1)
    harness.run()


def test_committed_pages_of_a_cancelled_request_are_hittable():
    harness = Harness(max_num_batched_tokens=8)
    first = harness.submit(range(16), max_tokens=1)
    harness.step()
    harness.schedule()  # its second chunk is in flight
    harness.cancel(first)
    second = harness.submit(range(16), max_tokens=1)
    harness.update()
    until(harness, lambda: second.finished)
    assert second.num_cached == 8
    harness.run()


@both_depths
@pytest.mark.parametrize("chunks", [1, 2])
def test_a_half_prefilled_prompt_leaves_nothing_behind(chunks, max_in_flight):
    """sglang#1858, sglang#2238: a chunked request took fresh resources every round, and leaked."""
    harness = Harness(max_num_batched_tokens=8, max_in_flight=max_in_flight)
    request = harness.submit(range(24), max_tokens=5)
    for _ in range(chunks):
        harness.step()
    assert request.num_computed == 8 * chunks and len({a.row for a in harness.plans[0].admissions})
    harness.cancel(request)
    harness.run()
    assert sum(len(plan.admissions) for plan in harness.plans) == 1


def test_a_shared_page_outlives_its_first_owner_under_pressure():
    """atlas#373: eviction freed a page that another request still used."""
    harness = Harness(num_pages=10, max_num_batched_tokens=64)
    a = harness.submit(range(12), max_tokens=2)
    harness.step()
    b = harness.submit([*range(12), 50], max_tokens=20)
    until(harness, lambda: a.finished)
    harness.submit(range(200, 212), max_tokens=1)
    harness.run()
    assert b.num_cached == 12 and b.finish_reason is FinishReason.LENGTH


@both_depths
def test_an_error_ends_one_request_and_no_other(max_in_flight):
    """mistral.rs#2076: the error state did not count as finished, so its pages were kept."""
    harness = Harness(max_in_flight=max_in_flight)
    good, bad, waiting = (harness.submit([i, i, i], max_tokens=9) for i in range(3))
    until(harness, lambda: bad.num_outputs >= 3)
    harness.executor.failing[bad.number] = "the sampler raised"
    harness.run()
    assert bad.finish_reason is FinishReason.ERROR and bad.error == "the sampler raised"
    assert good.num_outputs == waiting.num_outputs == 9


@both_depths
def test_what_a_failed_step_wrote_is_never_hit(max_in_flight):
    """vllm#43569 again, by another way: the step that fills the page fails."""
    harness = Harness(max_num_batched_tokens=64, max_in_flight=max_in_flight)
    first = harness.submit(range(16), max_tokens=5)
    harness.executor.failing[first.number] = "out of memory"
    until(harness, lambda: first.finished)
    second = harness.submit(range(16), max_tokens=5)
    harness.run()
    assert second.num_cached == 0


@both_depths
def test_a_step_that_fails_for_everybody_stops_nobody_else(max_in_flight):
    """TensorRT-LLM#13318: the loop died, all requests hung, and health said OK."""
    harness = Harness(max_num_seqs=2, max_in_flight=max_in_flight)
    requests = [harness.submit([i, i], max_tokens=4) for i in range(4)]
    harness.step()
    for item in harness.plans[0].items:
        harness.executor.failing[item.number] = "device lost"
    harness.run()
    reasons = [request.finish_reason for request in requests]
    assert reasons == [FinishReason.ERROR] * 2 + [FinishReason.LENGTH] * 2


@both_depths
def test_everything_can_be_failed_at_once(max_in_flight):
    """TensorRT-LLM#13318: when the executor is gone, every open request must hear of it."""
    harness = Harness(max_num_seqs=2, max_in_flight=max_in_flight)
    requests = [harness.submit([i, i], max_tokens=9) for i in range(4)]
    harness.step()
    harness.schedule()
    harness.scheduler.fail_all("the executor is gone", harness.now)
    harness._take_events()
    harness.check_idle()
    assert not harness.scheduler.has_work
    assert {request.error for request in requests} == {"the executor is gone"}


# --- steps in flight ---------------------------------------------------------------------------


@both_depths
def test_an_abort_in_flight_frees_once(max_in_flight):
    """vllm#33377: abort freed a request, and the result of its step freed it again."""
    harness = Harness(max_in_flight=max_in_flight)
    request = harness.submit([1, 2, 3], max_tokens=9)
    harness.step()
    harness.schedule()
    tokens = request.num_outputs
    harness.cancel(request)
    assert harness.pool.num_held > 0  # a step in flight still writes there
    harness.run()
    assert request.num_outputs == tokens and request.finish_reason is FinishReason.CANCELLED


def test_a_row_comes_back_once_and_only_behind_its_last_step():
    """mini-sglang#111: an aborted request was still in the batch before; its row freed twice."""
    harness = Harness(max_num_seqs=1, max_in_flight=2)
    first = harness.submit([1, 2, 3], max_tokens=9)
    harness.schedule()
    harness.schedule()
    harness.cancel(first)
    second = harness.submit([4, 5, 6], max_tokens=2)
    harness.update()
    assert harness.schedule() is None and second.row == -1  # the second step is still out
    harness.update()
    assert harness.schedule() is not None and second.row == 0
    harness.run()


def test_pages_of_an_aborted_request_are_not_given_away_too_early():
    """vllm#45357, vllm-ascend#14055: pages were reused while a launched step still wrote to them.

    The pool is so small that the next request can only use the same pages; the harness poisons
    whatever is free, so the step in flight would trip over it.
    """
    harness = Harness(num_pages=3, max_in_flight=2, prefix_caching=False)
    first = harness.submit(range(8), max_tokens=3)
    harness.step()
    assert len(harness.in_flight) == 1 and not first.finished
    harness.cancel(first)
    second = harness.submit(range(50, 58), max_tokens=3)
    assert harness.schedule() is None
    assert harness.roster.table.num_coming == 3
    harness.update()
    assert harness.schedule() is not None and len(second.pages) == 2
    harness.run()


def test_pages_that_are_coming_spare_the_others():
    """vllm-ascend#16315: victims freed nothing yet, so the loop emptied the whole running list."""
    harness = Harness(num_pages=16, max_num_seqs=8, max_num_batched_tokens=64, max_in_flight=2)
    requests = [harness.submit(range(i, i + 7), max_tokens=12) for i in range(0, 80, 10)]
    until(harness, lambda: preempted(harness))
    plan_by_plan = [event for event in harness.events if event.kind is EventKind.PREEMPTED]
    # All eight need a page in the same step; each victim gives back two. Three are enough.
    assert [event.request for event in plan_by_plan] == requests[:-5:-1][: len(plan_by_plan)]
    assert len(plan_by_plan) <= 4
    harness.run()


def test_victims_are_no_more_than_needed():
    """vllm-ascend#16315, counted: two pages are missing, and each victim gives back two."""
    harness = Harness(num_pages=8, max_num_seqs=4, max_num_batched_tokens=64, max_in_flight=1)
    a, b, c, d = (harness.submit(range(i, i + 8), max_tokens=9) for i in (0, 20, 40, 60))
    harness.step()
    harness.step()  # everybody needs a third page now
    assert preempted(harness) == [d, c]
    assert all(len(request.pages) == 3 for request in (a, b))
    harness.run()


@both_depths
def test_pages_that_come_back_go_to_who_waits_for_them_not_to_newcomers(max_in_flight):
    """A livelock found here: the victim was let in again before the other had its page."""
    harness = Harness(
        num_pages=6, page_size=2, batching=PrefillFirst(), max_in_flight=max_in_flight
    )
    long = harness.submit(range(9), max_tokens=3)
    harness.step()
    shorts = [harness.submit([50 + i], max_tokens=3) for i in range(3)]
    harness.run(limit=100)
    assert long.num_preemptions == 0 and all(short.finished for short in shorts)


def test_newcomers_are_let_in_again_when_the_pages_have_come():
    """The other side of it: who has its page no longer keeps the door shut."""
    harness = Harness(num_pages=8, page_size=2, max_in_flight=2, order=Priority(), max_num_seqs=3)
    long = harness.submit([1, 2, 3, 0], max_tokens=12)
    low = harness.submit([4, 5, 6, 7, 8, 9, 10], max_tokens=9, priority=1)
    until(harness, lambda: preempted(harness))
    assert preempted(harness) == [low]
    urgent = harness.submit([11], max_tokens=2, priority=-1)
    until(harness, lambda: urgent.finished)
    assert not long.finished
    harness.run()


def test_a_victim_later_in_the_same_step_gets_no_pages():
    """vllm#23347, turned round: the victim's turn in the step comes after it was chosen.

    Two prompts are half prefilled when the first runs out of pages: the chat has grown into what
    was promised. Both have to go; and when the second's turn comes, there are free pages again.
    """

    class Greedy:
        def attempts(self, situation):
            return (Work.DECODE | Work.PREFILL | Work.ADMIT_ALL,)

    harness = Harness(
        num_pages=18, page_size=1, batching=Greedy(), max_num_seqs=3, max_num_batched_tokens=4
    )
    chat = harness.submit([1, 2, 3], max_tokens=9)
    harness.step()
    first = harness.submit(range(20, 32), max_tokens=1)
    second = harness.submit(range(40, 42), max_tokens=1)
    until(harness, lambda: preempted(harness))
    assert preempted(harness) == [second, first]
    assert [item.number for item in harness.plans[-1].items] == [chat.number]
    harness.run()


def test_every_token_that_can_be_written_has_its_page():
    """sglang#14939, sglang#14972: the check passed, then the step in flight grew: no page left.

    A request plans for one token more than is known; the harness checks that its pages cover all of
    it, with a pool that is full at exactly that moment.
    """
    for num_pages in range(2, 12):
        harness = Harness(num_pages=num_pages, page_size=2, max_in_flight=2, max_num_seqs=3)
        for i in range(3):
            harness.submit([i] * 3, max_tokens=6)
        harness.run()


def test_tokens_of_a_preempted_life_are_dropped_and_sampled_again():
    """A token in flight for a preempted request must not be counted twice when it resumes."""
    harness = Harness(num_pages=6, page_size=2, max_in_flight=2, prefix_caching=False)
    a, b = harness.submit([1, 2, 3], 9), harness.submit([4, 5, 6], 9)
    harness.run()
    assert b.num_preemptions >= 1 and a.num_outputs == b.num_outputs == 9


# --- prefixes ----------------------------------------------------------------------------------


@both_depths
@pytest.mark.parametrize("page_size", [1, 4, 5])
def test_a_prompt_of_whole_pages_twice(page_size, max_in_flight):
    """nano-vllm#144, nano-vllm#199: a full hit left nothing to compute, and crashed."""
    harness = Harness(page_size=page_size, max_in_flight=max_in_flight)
    prompt = range(4 * page_size)
    first = harness.submit(prompt, max_tokens=5)
    harness.run()
    second = harness.submit(prompt, max_tokens=5)
    harness.run()
    assert second.num_cached == 3 * page_size and second.outputs == first.outputs


def test_a_conversation_goes_on_from_its_own_outputs():
    """Pages of outputs are hittable too, once their request has ended."""
    harness = Harness(page_size=4)
    first = harness.submit(range(10), max_tokens=11)
    harness.run()
    second = harness.submit([*first.tokens, 5, 6], max_tokens=3)
    harness.run()
    assert second.num_cached == 20  # 20 of the 21 tokens were stored: five pages


def test_cold_and_warm_give_the_same_tokens():
    """vllm#40896, vllm#42699: here bit for bit, since the fake's token depends on all it reads."""
    prompts = [[*range(20), i, i + 1] for i in range(6)]
    for caching in (False, True):
        harness = Harness(prefix_caching=caching, max_num_batched_tokens=32)
        for prompt in prompts * 2:
            harness.submit(prompt, max_tokens=6)
        harness.run()  # compares with the run alone
        assert any(request.num_cached for request in harness.requests) is caching


def test_other_salts_share_nothing():
    """vllm#12621: who must not profit from another's cache gives a salt of its own."""
    harness = Harness()
    for salt in ("", "a", "b"):
        harness.submit(range(20), max_tokens=2, salt=salt)
        harness.run()
    again = harness.submit(range(20), max_tokens=2, salt="a")
    harness.run()
    assert [request.num_cached for request in harness.requests[:3]] == [0, 0, 0]
    assert again.num_cached == 16


def test_a_refused_admission_changes_no_count():
    """Invariant 4: pages looked at for somebody who then does not fit are let go of again."""
    harness = Harness(num_pages=8, max_num_batched_tokens=64)
    a = harness.submit(range(16), max_tokens=9)
    harness.step()
    before = [state.holders for state in harness.pool.states()]
    big = harness.submit([*range(16), *range(50, 64)], max_tokens=1)
    assert harness.schedule() is not None
    after = [state.holders for state in harness.pool.states()]
    assert big.row == -1 and sum(after) == sum(before) + 1  # the page of a's next token
    harness.update()
    harness.run()
    assert a.num_outputs == 9


def test_a_whole_prompt_that_waits_for_its_turn_holds_nothing():
    """Invariant 4 for prompts that are not cut: pages to share are let go of while it waits."""
    harness = Harness(chunked_prefill=False, num_pages=30, max_num_batched_tokens=20)
    first = harness.submit(range(16), max_tokens=9)
    harness.step()
    other, twin = harness.submit(range(50, 66), 1), harness.submit([*range(16), *range(8)], 1)
    harness.schedule()
    assert (other.row, twin.row) == (1, -1)
    assert [harness.pool.states()[page].holders for page in first.pages[:4]] == [1] * 4
    harness.update()
    harness.run()
    assert twin.num_cached == 16


def test_who_was_refused_is_let_in_when_pages_come_back():
    """While others run on: nobody has to wait until the engine is empty."""
    harness = Harness(num_pages=12, max_num_batched_tokens=64)
    long, short = harness.submit(range(8), 20), harness.submit(range(20, 34), 4)
    harness.step()
    waits = harness.submit(range(50, 74), max_tokens=2)
    until(harness, lambda: short.finished)
    assert waits.row == -1 and len(harness.plans) == 4
    harness.step()
    assert waits.row >= 0 and not long.finished
    harness.run()


def test_who_was_refused_is_let_in_when_its_prefix_has_been_stored():
    """It does not fit beside the first request; it does when it can share that one's pages."""
    harness = Harness(num_pages=10, max_num_batched_tokens=16, max_num_seqs=3)
    first = harness.submit(range(28), max_tokens=8)
    second = harness.submit([*range(28), 99], max_tokens=4)
    harness.run()
    admitted = next(e.time for e in harness.events if e.request is second)
    ended = next(e.time for e in harness.events if e.kind is EventKind.FINISHED)
    assert second.num_cached == 28 and admitted < ended and first.num_preemptions == 0


# --- admission ---------------------------------------------------------------------------------


def test_a_prompt_over_the_pool_does_not_block_the_queue():
    """vllm#39734, vllm#35541: it waited for ever, and everybody behind it."""
    harness = Harness(num_pages=7, page_size=16, max_num_batched_tokens=64)
    with pytest.raises(RequestRefused, match="112 tokens.*stores 112"):
        harness.submit(range(7 * 16))
    short = harness.submit(range(5), max_tokens=2)
    harness.run()
    assert short.finish_reason is FinishReason.LENGTH


@both_depths
@pytest.mark.parametrize("page_size", [1, 2, 16])
def test_a_request_that_outgrows_the_pool_ends_with_what_it_has(page_size, max_in_flight):
    """nano-vllm#274, nano-vllm#277: a bare assert, or preempting itself for ever."""
    harness = Harness(num_pages=4, page_size=page_size, max_in_flight=max_in_flight)
    request = harness.submit(range(3 * page_size), max_tokens=10 * page_size)
    other = harness.submit([1], max_tokens=1)
    harness.run()
    assert request.finish_reason is FinishReason.KV_CAPACITY
    assert len(request.tokens) == 4 * page_size + 1  # the last one sampled needs no page
    assert other.finish_reason is FinishReason.LENGTH


@both_depths
@pytest.mark.parametrize("known", [7, 8, 9])
def test_outgrowing_the_pool_ends_alike_after_a_preemption(known, max_in_flight):
    """nano-vllm#277: one token below, at, and above what the pool stores, recomputed or not."""
    harness = Harness(num_pages=4, page_size=2, max_in_flight=max_in_flight)
    request = harness.submit(range(3), max_tokens=50)
    until(harness, lambda: len(request.tokens) == known)
    harness.scheduler.preempt(request, harness.now)
    harness._take_events()
    harness.run()
    assert request.finish_reason is FinishReason.KV_CAPACITY and len(request.tokens) == 9


@both_depths
def test_outgrowing_the_pool_preempts_nobody(max_in_flight):
    """nano-vllm#277: no number of victims helps who is too long for the whole pool."""
    harness = Harness(num_pages=8, page_size=2, max_in_flight=max_in_flight, max_num_seqs=2)
    long = harness.submit(range(14), max_tokens=50)
    until(harness, lambda: len(long.tokens) >= 16)
    sharing = harness.submit([*range(14), 99], max_tokens=1)
    harness.run()
    assert long.finish_reason is FinishReason.KV_CAPACITY
    assert sharing.finish_reason is FinishReason.LENGTH and sharing.num_preemptions == 0


def test_prompts_are_admitted_only_when_they_fit_whole():
    """vllm#25538, vllm#21793: admission looked at the first chunk, and half prompts thrashed."""
    harness = Harness(num_pages=64, page_size=4, max_num_seqs=4, max_num_batched_tokens=16)
    requests = [harness.submit(range(i, i + 160), max_tokens=8) for i in range(0, 800, 200)]
    harness.run()
    assert preempted(harness) == []
    prefill = sum(plan.num_tokens - plan.num_decodes for plan in harness.plans)
    assert prefill <= 1.2 * sum(request.num_prompt_tokens for request in requests)


def test_pages_promised_to_half_prefilled_prompts_are_not_given_away():
    """vllm#25538: the promise is what counts, not what has been taken yet."""
    harness = Harness(
        num_pages=64, page_size=4, max_num_seqs=4, max_num_batched_tokens=16, batching=Static()
    )
    requests = [harness.submit(range(i, i + 100), max_tokens=4) for i in range(0, 800, 200)]
    harness.step()
    assert [request.row >= 0 for request in requests] == [True, True, False, False]  # 25 pages each
    assert sum(len(request.pages) for request in requests) == 4
    harness.run()
    assert preempted(harness) == []


def test_the_watermark_leaves_room_to_grow():
    """vllm#44594, vllm#28018: admission filled the pool to the last page; growth then preempted."""

    def preemptions(watermark: float) -> int:
        harness = Harness(
            num_pages=20, watermark=watermark, max_num_batched_tokens=64, prefix_caching=False
        )
        for i in range(8):
            harness.submit(range(20 * i, 20 * i + 16), max_tokens=10)
        harness.run()
        return len(preempted(harness))

    assert preemptions(0.0) > preemptions(0.2) > preemptions(0.6) == 0


def test_the_watermark_does_not_bind_who_is_alone():
    """vllm#44594: with nothing else running, a prompt that fits is let in, watermark or not."""
    harness = Harness(num_pages=10, watermark=0.9, max_num_batched_tokens=64)
    first, second = harness.submit(range(36), 1), harness.submit([1, 2], 1)
    harness.run()
    assert second.finished and [len(plan.admissions) for plan in harness.plans] == [1, 1]
    assert first.finish_reason is FinishReason.LENGTH


# --- preemption --------------------------------------------------------------------------------


@both_depths
@pytest.mark.parametrize("budget", [8, 64])
def test_a_resumed_request_computes_prompt_and_outputs(budget, max_in_flight):
    """vllm#16832, vllm#5349: only the prompt was recomputed, or the resume was taken for a decode.

    With the smaller budget it resumes in two chunks or more.
    """
    harness = Harness(
        num_pages=8,
        max_num_batched_tokens=budget,
        max_in_flight=max_in_flight,
        prefix_caching=False,
    )
    a, b = harness.submit(range(12), max_tokens=14), harness.submit(range(50, 60), max_tokens=14)
    harness.run()
    assert b.num_preemptions >= 1 and a.num_preemptions == 0
    items = [item for plan in harness.plans for item in plan.items if item.number == b.number]
    resumes = [index for index, item in enumerate(items) if item.start == 0][1:]
    for index in resumes:
        whole = next(item for item in items[index:] if item.samples)
        assert whole.stop > b.num_prompt_tokens
        assert (items[index] is whole) == (budget == 64)


def test_a_resumed_request_finds_its_own_pages_again():
    """Preemption by recompute costs little while the pages it left have not been taken."""
    harness = Harness(num_pages=12, max_num_batched_tokens=64)
    a, b = harness.submit(range(16), max_tokens=12), harness.submit(range(50, 66), max_tokens=12)
    until(harness, lambda: b.num_outputs == 5)
    harness.scheduler.preempt(b, harness.now)  # as if pages had run out for a moment
    harness.step()
    resumed = [item for item in harness.plans[-1].items if item.number == b.number]
    assert resumed[0].start == 20 and resumed[0].stop == 21
    harness.run()
    assert a.num_outputs == b.num_outputs == 12 and b.num_cached == 0


def test_a_victim_scheduled_in_the_same_step_is_rolled_back():
    """vllm#23347, vllm#23713: its tokens must return to the budget, and it must leave the batch.

    Priority 5 decodes first in the step; then the chunk of priority 0 runs out of pages.
    """
    harness = Harness(
        num_pages=9,
        page_size=4,
        order=Priority(),
        max_num_batched_tokens=16,
        max_num_seqs=3,
        prefix_caching=False,
    )
    low = harness.submit(range(7), max_tokens=20, priority=5)
    harness.step()
    high = harness.submit(range(100, 128), max_tokens=1, priority=0)
    harness.step()
    assert (low.num_scheduled, high.num_scheduled) == (8, 15)
    plan = harness.schedule()  # low takes the page that high was promised, then has to go
    assert plan is not None and preempted(harness) == [low]
    assert [item.number for item in plan.items] == [high.number]
    assert plan.num_decodes == 0 and plan.num_tokens == 13
    assert {entry.row for entry in plan.entries} == {high.row}
    assert low.num_scheduled == 0 and low.state is RequestState.PREEMPTED
    harness.update()
    harness.run()
    assert low.num_outputs == 20


def test_the_budget_of_a_rolled_back_victim_is_used_again():
    """vllm#23713: a victim's tokens return to the budget in the same step."""
    draft = Draft(step=3, budget=8, chunked=True)
    keeps, goes = Request("keeps", [1]), Request("goes", [1])
    for number, request in enumerate((keeps, goes)):
        request.number = request.row = number
        request.pages = [10 + number]
        draft.admit(request)
        draft.decodes.append(PlanItem(number, number, 0, 1, True, [1]))
    draft.add_chunk(PlanItem(2, 2, 0, 5, False, [1] * 5))
    assert draft.room(99) == 1
    assert draft.drop(goes) == 1 and draft.room(99) == 2
    assert draft.drop(goes) == 0
    plan = draft.plan()
    assert [item.number for item in plan.items] == [0, 2] and plan.num_decodes == 1
    assert plan.num_tokens == 6
    assert [a.number for a in plan.admissions] == [0] and [e.page for e in plan.entries] == [10]


def test_the_lowest_priority_gives_way_even_if_admitted_first():
    harness = Harness(num_pages=6, order=Priority(), max_num_batched_tokens=64)
    low = harness.submit(range(8), max_tokens=9, priority=7)
    harness.step()
    high = harness.submit(range(50, 60), max_tokens=9, priority=1)
    harness.run()
    assert low.num_preemptions >= 1 and high.num_preemptions == 0


def test_fcfs_sacrifices_who_came_last():
    harness = Harness(num_pages=11, order=Fcfs(), max_num_batched_tokens=64)
    requests = [harness.submit(range(i, i + 7), 10, priority=-i) for i in (0, 20, 40)]
    harness.run()
    assert [request.num_preemptions > 0 for request in requests] == [False, False, True]


def test_lengths_do_not_preempt_each_other_in_circles():
    """mistral.rs#2024: buckets of lengths preempted each other each step: quadratic re-prefill."""
    harness = Harness(num_pages=40, max_num_batched_tokens=64, max_num_seqs=12)
    for length in (10, 30, 60):
        for i in range(4):
            harness.submit(range(100 * i + length, 100 * i + 2 * length), max_tokens=12)
    harness.run()
    known = sum(len(request.tokens) - 1 for request in harness.requests)
    assert harness.executor.tokens_computed <= 1.2 * known


@pytest.mark.parametrize("seed", range(10))
@both_depths
def test_random_preemption_loses_and_doubles_no_token(seed, max_in_flight):
    """Invariant 2 under fire: every running request may be preempted before any step, p = 0.2."""
    rng = random.Random(seed)
    harness = Harness(num_pages=100, max_in_flight=max_in_flight, max_num_batched_tokens=9)
    for i in range(6):
        harness.submit(range(40 * i, 40 * i + rng.randint(1, 30)), max_tokens=rng.randint(9, 25))
    while harness.scheduler.has_work:
        for request in harness.requests:
            if request.state is RequestState.RUNNING and rng.random() < 0.2:
                harness.scheduler.preempt(request, harness.now)
        harness.check()
        harness.step()
    harness._take_events()
    harness.check_idle()
    assert sum(request.num_preemptions for request in harness.requests) > 5


# --- cancelling --------------------------------------------------------------------------------


def test_cancel_while_waiting():
    """sglang#37833, sglang#36876: nothing is held, and the queue goes on."""
    harness = Harness(max_num_seqs=1)
    first, second, third = (harness.submit([i, i], 3) for i in range(3))
    harness.step()
    assert harness.cancel(second) and harness.scheduler.num_waiting == 1
    harness.run()
    assert second.finish_reason is FinishReason.CANCELLED and second.num_outputs == 0
    assert first.num_outputs == third.num_outputs == 3


@both_depths
def test_cancel_while_decoding_returns_the_tokens_so_far(max_in_flight):
    """sglang#37833: blocks back within one step, counted as cancelled, not completed."""
    harness = Harness(max_in_flight=max_in_flight)
    request = harness.submit([1, 2, 3], max_tokens=50)
    until(harness, lambda: request.num_outputs == 4)
    harness.cancel(request)
    assert request.state is RequestState.FINISHED
    while harness.in_flight:
        harness.update()
    harness.check_idle()
    assert request.outputs == expected([1, 2, 3], 50)[:4]


@both_depths
def test_cancel_while_preempted(max_in_flight):
    harness = Harness(num_pages=6, prefix_caching=False, max_in_flight=max_in_flight)
    a, b = harness.submit(range(8), 12), harness.submit(range(20, 28), 12)
    until(harness, lambda: b.state is RequestState.PREEMPTED)
    harness.cancel(b)
    harness.run()
    assert b.finish_reason is FinishReason.CANCELLED and a.num_outputs == 12


@both_depths
def test_cancel_everybody_at_every_moment(max_in_flight):
    """sglang#37833: wherever the cancel falls, nothing leaks and everybody ends once."""
    for moment in range(14):
        harness = Harness(num_pages=7, max_in_flight=max_in_flight, max_num_batched_tokens=8)
        requests = [harness.submit(range(i, i + 9), 8) for i in (0, 20, 40)]
        for _ in range(moment):
            if harness.in_flight and (moment % 2 or len(harness.in_flight) == max_in_flight):
                harness.update()
            else:
                harness.schedule()
        for request in requests:
            harness.cancel(request)
        harness.run()
        assert all(request.finished for request in requests)


def test_late_cancels_are_logged_and_change_nothing(caplog):
    """vllm#42157, vllm#43226: an event for an id that was gone killed the whole engine."""
    harness = Harness()
    request = harness.submit([1, 2], max_tokens=2)
    harness.run()
    with caplog.at_level(logging.INFO, logger="minicache.scheduler.scheduler"):
        assert not harness.cancel(request)
        assert not harness.scheduler.cancel("never heard of", 0.0)
    assert "cancel of 'never heard of' ignored" in caplog.text
    assert request.finish_reason is FinishReason.LENGTH
    harness.check_idle()


def test_cancel_twice():
    harness = Harness()
    request = harness.submit([1, 2], max_tokens=9)
    harness.step()
    assert harness.cancel(request) and not harness.cancel(request)
    harness.run()
