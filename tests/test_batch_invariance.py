"""`batch_invariant`: the same bits for any chunking, company, preemption and cache state.

Logits of the last chunk equal the unchunked run for every chunk size, with random preemption, with
a cold and a warm cache: to 1e-5 by default, bit for bit in this mode.
"""

from __future__ import annotations

import random

import pytest
import torch
from model_driver import FAMILY, Driver, RecordingSampler, prompt, tiny_model
from torch import Tensor

from minicache.core import EngineCore
from minicache.kv_cache import PagedKVCache
from minicache.model import Decoder
from minicache.model.rows import FixedRows
from minicache.page_pool import PagePool
from minicache.policy import Fcfs, Mixed
from minicache.request import FinishReason, Request, SamplingParams
from minicache.runner import ModelRunner
from minicache.scheduler import Scheduler, SchedulerConfig
from minicache.trace import Trace

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MODES = [
    pytest.param(architecture, dtype, id=f"{architecture}-{name}")
    for architecture in FAMILY
    for name, dtype in DTYPES.items()
]


@pytest.mark.parametrize("architecture, dtype", MODES)
def test_every_chunk_size_gives_the_same_bits(architecture, dtype):
    model = tiny_model(architecture, dtype=dtype, batch_invariant=True)
    tokens = prompt(75)
    want = None
    for size in (75, *range(1, 20), 31, 32, 33, 63, 64, 65, 74):
        driver = Driver(model)
        driver.admit(tokens)
        for start in range(0, len(tokens), size):
            driver.step([(0, start, min(start + size, len(tokens)))])
        got = driver.logits[0, 75]
        want = got if want is None else want
        assert torch.equal(got, want), f"chunks of {size}"


@pytest.mark.parametrize("architecture, dtype", MODES)
def test_company_and_row_do_not_matter(architecture, dtype):
    """sglang-omni#760: 'the same prompt, other neighbours, other bits', and the cure."""
    model = tiny_model(architecture, dtype=dtype, batch_invariant=True)
    alone = Driver(model)
    alone.admit(prompt(40))
    alone.generate(0, 4)
    crowd = Driver(model)
    for seed, length in enumerate((70, 3, 29)):
        crowd.admit(prompt(length, seed=seed + 1))
    row = crowd.admit(prompt(40))
    crowd.step([(0, 0, 70), (1, 0, 3), (2, 0, 29), (row, 0, 37)])
    crowd.step([(0, 70, 71), (1, 3, 4), (row, 37, 40)])
    for position in (40, 41, 42):
        crowd.step([(0, position + 31, position + 32), (row, position, position + 1)])
    for position in range(40, 44):
        assert torch.equal(crowd.logits[row, position], alone.logits[0, position])


def serve(
    model: Decoder, prompts: list[list[int]], *, pages: int, budget: int, rows: int, caching: bool
) -> tuple[dict[tuple[int, int], Tensor], int]:
    """Run prompts through scheduler and runner → logits by (number, position), preemptions."""
    sampler = RecordingSampler()
    runner = ModelRunner(
        model,
        PagedKVCache(model.config, pages, 4, dtype=model.dtype),
        sampler,
        num_rows=rows,
        max_model_len=256,
    )
    pool = PagePool(pages, 4, prefix_caching=caching, debug=True)
    limits = SchedulerConfig(max_num_seqs=rows, max_num_batched_tokens=budget, max_model_len=256)
    scheduler = Scheduler(pool, limits, Mixed(), Fcfs())
    core = EngineCore(scheduler, pool, runner, Trace("test", page_size=4), lambda: 0.0)
    requests = [Request(str(i), p, SamplingParams(max_tokens=12)) for i, p in enumerate(prompts)]
    for request in requests:
        core.submit(request)
    while core.has_work:
        core.step()
        pool.check()
    assert {request.finish_reason for request in requests} == {FinishReason.LENGTH}
    assert pool.num_held == 0
    return sampler.logits, sum(request.num_preemptions for request in requests)


def family_of_prompts() -> list[list[int]]:
    shared = prompt(24, seed=99)
    return [[*shared[: 8 * (i % 4)], *prompt(5 + 7 * i, seed=i)] for i in range(6)]


@pytest.mark.parametrize("caching", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("invariant", [True, False], ids=["bits", "rounding"])
def test_preemption_chunking_and_prefix_hits_change_nothing(invariant, caching):
    model = tiny_model("qwen3", batch_invariant=invariant)
    prompts = family_of_prompts()
    want, none = serve(model, prompts, pages=200, budget=512, rows=1, caching=False)
    assert none == 0
    got, preemptions = serve(model, prompts, pages=24, budget=13, rows=6, caching=caching)
    assert preemptions > 0
    for key, logits in got.items():
        if invariant:
            assert torch.equal(logits, want[key])
        else:
            assert float((logits - want[key]).abs().max() / want[key].abs().max()) < 1e-5
    assert got.keys() == want.keys()


@pytest.mark.parametrize("invariant", [True, False], ids=["bits", "rounding"])
def test_random_preemption(invariant):
    """A fifth of the steps begins by throwing away all that is stored; chunks are random."""
    model = tiny_model("llama", batch_invariant=invariant)
    smooth = Driver(model)
    smooth.admit(prompt(50))
    smooth.generate(0, 10)
    rng = random.Random(5)
    rough = Driver(model)
    rough.admit(prompt(50))
    done, preemptions = 0, 0
    while len(rough.tokens[0]) < 60:
        if done and rng.random() < 0.2:
            rough.admit(rough.tokens[0], row=0)
            done, preemptions = 0, preemptions + 1
        stop = min(len(rough.tokens[0]), done + rng.randint(1, 40))
        rough.step([(0, done, stop)])
        done = stop
    assert preemptions >= 2 and rough.tokens == smooth.tokens
    for key, logits in rough.logits.items():
        if invariant:
            assert torch.equal(logits, smooth.logits[key])
        else:
            error = (logits - smooth.logits[key]).abs().max() / smooth.logits[key].abs().max()
            assert float(error) < 1e-5


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("outputs, inputs", [(960, 576), (3072, 576), (576, 1536), (131, 48)])
def test_a_row_of_a_product_does_not_depend_on_its_place(dtype, outputs, inputs):
    """What the mode rests on: in one shape, the library sums every row in the same order."""
    from minicache.linear import DenseLinear, PackedLinear, packing_helps

    generator = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
    packed = packing_helps(torch.device("cpu"), dtype)
    linear = (PackedLinear if packed else DenseLinear)(weight)
    x = torch.randn(150, inputs, generator=generator).to(dtype)
    rows = FixedRows()
    (want,) = rows(lambda x: (linear(x),), x)
    for _ in range(5):
        order = torch.randperm(150, generator=generator)[: int(torch.randint(1, 150, ()))]
        (got,) = rows(lambda x: (linear(x),), x[order])
        assert torch.equal(got, want[order])


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_smollm2_gives_the_same_bits(dtype):
    from minicache.weights import load

    checkpoint = load("smollm2-135m", dtype=dtype)
    model = Decoder(checkpoint.config, checkpoint.tensors, dtype=dtype, batch_invariant=True)
    tokens = prompt(150, vocabulary=49152)
    whole = Driver(model)
    whole.admit(tokens)
    whole.generate(0, 2)
    for size in (149, 64, 37):
        cut = Driver(model)
        cut.admit(tokens)
        cut.generate(0, 2, chunk=size)
        assert all(torch.equal(cut.logits[key], whole.logits[key]) for key in whole.logits)
    crowd = Driver(model)
    crowd.admit(prompt(40, seed=1, vocabulary=49152))
    row = crowd.admit(tokens)
    crowd.step([(0, 0, 40), (row, 0, 100)])
    crowd.step([(0, 40, 41), (row, 100, 150)])
    crowd.step([(0, 41, 42), (row, 150, 151)])
    for position in (150, 151):
        assert torch.equal(crowd.logits[row, position], whole.logits[0, position])
