"""From plans to results: packing, page table, tokens in flight, failures that stay their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from model_driver import Driver, prompt, tiny_config, tiny_model, tiny_tensors
from torch import Tensor

from minicache.attention import TorchPagedAttention
from minicache.model import Decoder
from minicache.plan import Admission, PageEntry, PlanItem, StepPlan
from minicache.protocols import AttentionBatch
from minicache.request import SamplingParams
from minicache.runner.pack import pack
from minicache.runner.page_table import PageTable

# --- packing -----------------------------------------------------------------------------------


def test_items_are_packed_one_behind_the_other():
    table = PageTable(num_rows=3, num_columns=4)
    table.apply([PageEntry(2, 0, 7), PageEntry(2, 1, 3), PageEntry(0, 0, 5), PageEntry(0, 1, 6)])
    items = [
        PlanItem(number=11, row=2, start=4, stop=5, samples=True, tokens=[40]),
        PlanItem(number=12, row=0, start=2, stop=6, samples=True, tokens=[1, 2, 3, 4]),
        PlanItem(number=13, row=2, start=0, stop=2, samples=False, tokens=[8, 9]),
    ]
    step = pack(items, table.entries, page_size=4)
    assert step.tokens.tolist() == [40, 1, 2, 3, 4, 8, 9]
    assert step.positions.tolist() == [4, 2, 3, 4, 5, 0, 1]
    assert step.pages.tolist() == [3, 5, 5, 6, 6, 7, 7]
    assert step.offsets.tolist() == [0, 2, 3, 0, 1, 0, 1]
    assert step.starts.tolist() == [0, 1, 5, 7]
    assert step.lengths.tolist() == [5, 6, 2]
    assert step.sampled.tolist() == [0, 4]
    assert step.in_flight == []


def test_a_token_in_flight_is_named_by_its_row():
    table = PageTable(2, 2)
    table.apply([PageEntry(1, 0, 9)])
    step = pack([PlanItem(5, 1, 3, 4, True, [])], table.entries, page_size=16)
    assert step.tokens.tolist() == [0] and step.in_flight == [(0, 1)]


def test_a_new_owner_of_a_row_sees_no_page_of_the_old_one():
    """sparkinfer#41."""
    table = PageTable(2, 3)
    table.apply([PageEntry(1, column, 4 + column) for column in range(3)])
    table.forget(1)
    table.apply([PageEntry(1, 0, 8)])
    assert table.entries.tolist() == [[-1] * 3, [8, -1, -1]]
    with pytest.raises(AssertionError, match="has no page"):
        pack([PlanItem(1, 1, 15, 17, True, [1, 2])], table.entries, page_size=16)


# --- steps -------------------------------------------------------------------------------------


def test_a_result_says_which_step_and_when():
    times = iter([10.0, 12.5])
    driver = Driver(tiny_model(), clock=lambda: next(times))
    driver.admit(prompt(5))
    driver.admit(prompt(6))
    result = driver.step([(0, 0, 5), (1, 0, 3)])
    assert (result.step, result.t_start, result.t_end) == (1, 10.0, 12.5)
    assert len(result.tokens) == 1 and result.errors == {} and result.logprobs == {}


def test_results_are_collected_in_order():
    driver = Driver(tiny_model())
    driver.admit(prompt(9))
    plans = [driver.plan([(0, 0, 4)]), driver.plan([(0, 4, 9)])]
    for plan in plans:
        driver.runner.submit(plan)
    assert [driver.runner.collect().step for _ in plans] == [1, 2]
    assert driver.runner.max_in_flight == 1


def test_tokens_in_flight_are_those_sampled_last():
    plain, blind = Driver(tiny_model()), Driver(tiny_model())
    for driver in (plain, blind):
        driver.admit(prompt(9))
        driver.admit(prompt(20, seed=3))
        driver.step([(0, 0, 9), (1, 0, 20)])
    for position in range(6):
        work = [(0, 9 + position, 10 + position), (1, 20 + position, 21 + position)]
        plain.step(work)
        blind.step(work, in_flight=True)
    assert plain.tokens == blind.tokens


def test_logprobs_come_by_request_number():
    driver = Driver(tiny_model())
    driver.admit(prompt(5), SamplingParams(logprobs=2))
    driver.admit(prompt(7))
    result = driver.step([(0, 0, 5), (1, 0, 7)])
    assert set(result.logprobs) == {0}
    logs = driver.logits[0, 5].log_softmax(-1)
    assert result.logprobs[0].logprob == pytest.approx(float(logs.max()), abs=1e-5)
    assert [token for token, _ in result.logprobs[0].top] == logs.topk(2).indices.tolist()


def test_seeded_text_does_not_depend_on_company_or_chunks():
    params = SamplingParams(temperature=0.9, top_p=0.95, seed=5)
    alone = Driver(tiny_model())
    alone.admit(prompt(30), params)
    want = alone.generate(0, 8)
    crowd = Driver(tiny_model())
    crowd.admit(prompt(12, seed=4), SamplingParams(temperature=1.5, seed=1))
    row = crowd.admit(prompt(30), params)
    crowd.step([(0, 0, 12), (row, 0, 11)])
    crowd.step([(0, 12, 13), (row, 11, 30)])
    for position in range(30, 37):
        crowd.step([(0, position - 17, position - 16), (row, position, position + 1)])
    assert crowd.tokens[row][30:] == want


def test_the_parts_that_were_given_are_the_parts_that_run():
    class Spy(TorchPagedAttention):
        def __init__(self) -> None:
            super().__init__()
            self.longest: list[int] = []

        def __call__(
            self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
        ) -> Tensor:
            self.longest.append(batch.max_query)
            return super().__call__(q, k_pages, v_pages, batch, scale)

    decode, prefill = Spy(), Spy()
    driver = Driver(tiny_model(), decode_attention=decode, prefill_attention=prefill)
    driver.admit(prompt(9))
    driver.admit(prompt(8))
    driver.step([(0, 0, 9)])
    driver.step([(0, 9, 10), (1, 0, 8)])
    layers = driver.model.config.num_layers
    assert prefill.longest == [9] * layers + [8] * layers
    assert decode.longest == [1] * layers


# --- failures ----------------------------------------------------------------------------------


def poisoned_model(token: int) -> Decoder:
    """A model whose embedding of one token is NaN."""
    config = tiny_config()
    tensors = tiny_tensors(config)
    tensors["model.embed_tokens.weight"][token] = torch.nan
    return Decoder(config, tensors, dtype=torch.float32)


def test_logits_that_are_not_finite_end_their_request_only():
    """mistral.rs#2076, vllm#936: nor does the NaN in its pages harm who inherits them."""
    bad = [3, 130, 5, 6]
    clean = [token % 100 for token in prompt(20)]
    driver = Driver(poisoned_model(130), num_pages=3, num_rows=2)
    driver.admit(clean)
    driver.admit(bad)
    result = driver.step([(0, 0, 20), (1, 0, 4)])
    assert set(result.errors) == {1} and "float32" in result.errors[1]
    assert result.tokens[1] == -1
    alone = Driver(poisoned_model(130))
    alone.admit(clean)
    alone.step([(0, 0, 20)])
    assert torch.allclose(driver.logits[0, 20], alone.logits[0, 20], atol=1e-5)
    driver.admit(clean[:7], row=1)  # takes over the only free page, full of NaN
    assert driver.step([(1, 0, 7)]).errors == {}
    assert driver.logits[1, 7].isfinite().all()


def test_a_token_outside_the_vocabulary_ends_its_request_only():
    driver = Driver(tiny_model())
    for tokens in ([1, 131, 2], [4, 5], [-1, 7]):
        driver.admit(tokens)
    result = driver.step([(0, 0, 3), (1, 0, 2), (2, 0, 2)])
    assert set(result.errors) == {0, 2}
    assert "131 is not in the model's vocabulary of 131" in result.errors[0]
    assert "-1 is not" in result.errors[2]
    assert result.tokens[0] == result.tokens[2] == -1 and 0 <= result.tokens[1] < 131


class Fragile(TorchPagedAttention):
    """Raises when a sequence of one given length is in the batch."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.calls: list[tuple[int, ...]] = []

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        self.calls.append(batch.host_lengths)
        if self.length in batch.host_lengths:
            raise RuntimeError("no kernel for this shape")
        return super().__call__(q, k_pages, v_pages, batch, scale)


def test_a_step_that_raises_is_run_again_item_by_item():
    fragile = Fragile(7)
    driver = Driver(tiny_model(), prefill_attention=fragile)
    whole = Driver(tiny_model())
    for d in (driver, whole):
        for length in (5, 7, 9):
            d.admit(prompt(length, seed=length))
    work = [(0, 0, 5), (1, 0, 7), (2, 0, 9)]
    result, want = driver.step(work), whole.step(work)
    assert result.errors == {1: "The step failed: RuntimeError: no kernel for this shape"}
    assert result.tokens == [want.tokens[0], -1, want.tokens[2]]
    assert fragile.calls[0] == (5, 7, 9) and fragile.calls[-1] == (9,)
    after = driver.step([(0, 5, 6), (2, 9, 10)])
    assert after.tokens == whole.step([(0, 5, 6), (2, 9, 10)]).tokens


def test_an_interrupt_is_not_swallowed():
    class Interrupting:
        def admit(self, row: int, number: int, params: SamplingParams) -> None:
            pass

        def __call__(self, logits: Tensor, rows: Sequence[int], positions: Sequence[int]):
            raise KeyboardInterrupt

    driver = Driver(tiny_model())
    driver.runner._sampler = Interrupting()
    driver.admit(prompt(4))
    with pytest.raises(KeyboardInterrupt):
        driver.step([(0, 0, 4)])


def test_a_plan_without_sampling_items_returns_no_tokens():
    driver = Driver(tiny_model())
    driver.runner.submit(
        StepPlan(
            step=3,
            items=[PlanItem(9, 0, 0, 2, False, [1, 2])],
            num_decodes=0,
            num_tokens=2,
            budget=2,
            admissions=[Admission(0, 9, SamplingParams())],
            entries=[PageEntry(0, 0, 4)],
        )
    )
    result = driver.runner.collect()
    assert (result.step, result.tokens, result.errors) == (3, [], {})
    assert driver.cache.k_pages[0][4, :, :2].isfinite().all()
    assert np.isnan(driver.cache.k_pages[0][4, :, 2:].numpy()).all()
