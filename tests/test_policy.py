"""Batching policies and queue orders: what may run together, who is next, who gives way."""

from __future__ import annotations

import pytest
from fake_executor import Harness

from minicache.policy import (
    BATCHING,
    ORDERS,
    Alternating,
    Fcfs,
    Mixed,
    PrefillFirst,
    Priority,
    Situation,
    Static,
    Work,
)
from minicache.request import FinishReason, Request


def kinds(harness: Harness) -> list[str]:
    """One letter a step: d for decodes alone, p for prompts alone, m for both."""
    letters: list[str] = []
    for plan in harness.plans:
        chunks = len(plan.items) - plan.num_decodes
        letters.append("m" if plan.num_decodes and chunks else "d" if plan.num_decodes else "p")
    return letters


def numbered(count: int, **fields) -> list[Request]:
    requests = [Request(f"r{i}", [1], **fields) for i in range(count)]
    for number, request in enumerate(requests):
        request.number = number
    return requests


def situation(**fields) -> Situation:
    return Situation(
        **{"now": 0.0, "running": 0, "waiting": 0, "in_flight": 0, "last": Work.NONE} | fields
    )


# --- batching ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_in_flight", [1, 2])
@pytest.mark.parametrize("name", BATCHING)
def test_every_policy_serves_everybody(name, max_in_flight):
    harness = Harness(batching=BATCHING[name](), max_in_flight=max_in_flight, max_num_seqs=3)
    for length in (1, 3, 30, 2, 17, 16, 15, 40):
        harness.submit(range(1, length + 1), max_tokens=length % 5 + 1)
    harness.run()
    assert {r.finish_reason for r in harness.requests} == {FinishReason.LENGTH}


def test_mixed_decodes_in_every_step_beside_the_prompt():
    """sglang-omni#760, sglang#39342: prefill or decode, never both, left decodes stranded."""
    harness = Harness(batching=Mixed(), num_pages=400, max_num_seqs=20, max_num_batched_tokens=24)
    chats = [harness.submit([i, i, i], max_tokens=60) for i in range(16)]
    while any(chat.num_outputs < 2 for chat in chats):
        harness.step()
    longs = [harness.submit(range(i, i + 60), max_tokens=1) for i in range(1, 5)]
    first = len(harness.plans)
    while not all(long.finished for long in longs):
        harness.step()
    during = harness.plans[first:]
    assert len(during) == 30  # 4 x 60 tokens, 24 - 16 of them in a step
    assert all(plan.num_decodes == 16 for plan in during)
    harness.run()


def test_prefill_first_stalls_decodes_until_the_prompts_are_in():
    harness = Harness(batching=PrefillFirst(), max_num_batched_tokens=8)
    chat = harness.submit([1, 2, 3], max_tokens=8)
    harness.step()
    harness.step()
    harness.submit(range(20), max_tokens=2)
    harness.submit(range(30, 36), max_tokens=2)
    harness.run()
    assert kinds(harness)[:7] == ["p", "d", "p", "p", "p", "p", "d"]
    assert "m" not in kinds(harness)
    assert chat.finish_reason is FinishReason.LENGTH


def test_alternating_takes_turns_while_there_are_both():
    harness = Harness(batching=Alternating(), max_num_batched_tokens=8)
    harness.submit([1, 2, 3], max_tokens=8)
    harness.step()
    harness.submit(range(20), max_tokens=2)
    harness.run()
    assert "".join(kinds(harness)) == "pdpdpdp" + "d" * 4


def test_static_admits_a_batch_only_when_nothing_runs():
    harness = Harness(batching=Static(), max_num_seqs=3, max_num_batched_tokens=8)
    first = [harness.submit([i] * 6, max_tokens=n) for i, n in ((1, 2), (2, 9))]
    harness.step()
    second = [harness.submit([i] * 6, max_tokens=2) for i in (3, 4, 5, 6)]
    while not all(request.finished for request in first):
        assert {request.row for request in second} == {-1}
        harness.step()
    assert harness.now == 10  # 2 steps of prompts, 8 of decodes: the slowest one's time
    harness.step()
    assert [request.row >= 0 for request in second] == [True, True, True, False]
    harness.run()
    assert "m" not in kinds(harness)


def test_static_admits_ahead_of_the_budget_but_not_of_the_pages():
    """A batch is formed at once, though its prompts need several steps: pages are promised."""
    harness = Harness(batching=Static(), num_pages=9, max_num_seqs=4, max_num_batched_tokens=4)
    requests = [harness.submit([i] * 12, max_tokens=1) for i in range(1, 5)]
    harness.step()
    assert [request.row >= 0 for request in requests] == [True, True, True, False]
    assert [len(request.pages) for request in requests] == [1, 0, 0, 0]
    assert harness.roster.num_promised == 8
    harness.run()
    assert all(request.num_preemptions == 0 for request in requests)


def test_static_waits_for_the_last_step_of_a_batch_before_it_forms_the_next():
    """With steps in flight, rows of the old batch come back late; the new batch is to be full."""
    harness = Harness(batching=Static(), max_num_seqs=2, max_in_flight=2, eos_every=3)
    requests = [harness.submit([i], max_tokens=9) for i in range(6)]
    batches: list[int] = []
    while harness.scheduler.has_work:
        harness.step()
    batches = [len(plan.admissions) for plan in harness.plans if plan.admissions]
    assert batches == [2, 2, 2]
    assert any(r.finish_reason is FinishReason.STOP for r in requests)


def test_policies_are_pure():
    """The same situation gives the same answer: a policy may be shared by two engines."""
    for policy in (Static(), PrefillFirst(), Alternating(), Mixed()):
        for last in (Work.NONE, Work.DECODE, Work.PREFILL):
            for running in (0, 3):
                here = situation(running=running, last=last)
                assert policy.attempts(here) == policy.attempts(here)
        assert not vars(policy)


def test_a_policy_of_your_own_is_an_argument():
    """Decodes every third step only: a bad idea, but an allowed one."""

    class Lazy:
        def attempts(self, situation: Situation):
            if int(situation.now) % 3 == 0:
                return (Work.DECODE, Work.PREFILL | Work.ADMIT)
            return (Work.PREFILL | Work.ADMIT, Work.DECODE)

    harness = Harness(batching=Lazy(), max_num_batched_tokens=8)
    harness.submit([1, 2, 3], max_tokens=8)
    harness.submit(range(50), max_tokens=3)
    harness.run()
    assert "".join(kinds(harness)).startswith("pppdppdpp")


def test_names_lead_to_classes():
    assert list(BATCHING) == ["static", "prefill-first", "alternating", "mixed"]
    assert list(ORDERS) == ["fcfs", "priority"]
    with pytest.raises(TypeError):
        BATCHING["mine"] = Mixed  # type: ignore[index]


# --- queue orders ------------------------------------------------------------------------------


def drain(order) -> list[int]:
    numbers: list[int] = []
    while (request := order.peek()) is not None:
        order.remove(request)
        numbers.append(request.number)
    return numbers


def test_fcfs_serves_by_number_whatever_the_priority():
    order, requests = Fcfs(), numbered(4)
    requests[2].priority = -5
    for request in (requests[1], requests[3], requests[2], requests[0]):
        order.push(request)
    assert drain(order) == [0, 1, 2, 3]


def test_priority_serves_the_lowest_number_first_then_by_arrival():
    order, requests = Priority(), numbered(5)
    for request, priority in zip(requests, (3, 0, 3, 0, -1), strict=True):
        request.priority = priority
        order.push(request)
    assert drain(order) == [4, 1, 3, 0, 2]


@pytest.mark.parametrize("kind", [Fcfs, Priority])
def test_leaving_from_the_middle_and_coming_back(kind):
    order, requests = kind(), numbered(5)
    for request in requests:
        order.push(request)
    order.remove(requests[1])
    order.remove(requests[3])
    order.remove(requests[3])  # gone already: nothing happens
    order.push(requests[3])
    order.push(requests[1])
    order.remove(requests[0])
    assert drain(order) == [1, 2, 3, 4]
    assert order.peek() is None


def test_the_victim_is_the_last_admitted_of_the_lowest_priority():
    requests = numbered(4)
    for request, priority in zip(requests, (0, 5, 5, 0), strict=True):
        request.priority = priority
    assert Priority().victim(requests) is requests[2]
    assert Fcfs().victim(requests) is requests[3]


def test_priority_order_in_the_engine():
    harness = Harness(order=Priority(), max_num_seqs=1)
    for priority in (2, 1, 0, 1):
        harness.submit([1, 2], max_tokens=2, priority=priority)
    harness.run()
    assert [plan.admissions[0].number for plan in harness.plans if plan.admissions] == [2, 1, 3, 0]
