"""Invariant 6 through the whole of `LLM`: chunks, preemption, company and cache change no logit.

Every run is compared with one that computes the same sequence whole, alone, on a cold cache.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from model_driver import RecordingSampler
from tiny_folder import make_tiny_llama
from torch import Tensor

from minicache import LLM, FinishReason, SamplingParams
from minicache.policy import BATCHING, ORDERS
from minicache.request import RequestState


@pytest.fixture(autouse=True)
def one_thread():
    """A model this small loses more by waiting for a second thread than it gains."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


Logits = dict[tuple[int, int], Tensor]
"""By request number and position of the token they predict."""
VOCABULARY = 344


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("models"))


def make(folder: Path, invariant: bool, **options) -> tuple[LLM, RecordingSampler]:
    sampler = RecordingSampler()
    llm = LLM(
        folder,
        **{
            "dtype": "float32",
            "max_model_len": 512,
            "num_pages": 64,
            "batch_invariant": invariant,
            "sampler": sampler,
            **options,
        },
    )
    return llm, sampler


def check_equal(got: Tensor, want: Tensor, invariant: bool, where: object) -> None:
    if invariant:
        assert torch.equal(got, want), where
    else:
        error = float((got - want).abs().max() / want.abs().max())
        assert error < 1e-5, (where, error)


def prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(3, VOCABULARY) for _ in range(length)]


@pytest.mark.parametrize("invariant", [True, False], ids=["bits", "rounding"])
@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_every_chunk_size_cold_and_warm(folder: Path, page_size: int, invariant: bool):
    """imp#114, imp#117, nano-vllm#144: chunk sizes 1..n; a cold cache, then the same, warm."""
    tokens = prompt(random.Random(7), 20)  # pages of 3 and of 16 end inside it
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    want: dict[int, Tensor] = {}
    for size in (20, *range(1, 20)):
        options = {"page_size": page_size, "max_num_seqs": 1, "max_num_batched_tokens": size}
        llm, sampler = make(folder, invariant, num_pages=64, **options)
        for number in (0, 1):
            (output,) = llm.generate(tokens, params)
            assert output.finish_reason is FinishReason.LENGTH
            for position in (20, 21):
                got = sampler.logits[number, position]
                check_equal(got, want.setdefault(position, got), invariant, (size, number))
        cached = llm.engine.trace.requests[1].cached_tokens
        assert cached == 19 // page_size * page_size


class Turmoil:
    """One engine with random limits, fed at random, preempted at random (p = 0.2 a step)."""

    def __init__(self, folder: Path, seed: int, invariant: bool, tally: Counter[str]) -> None:
        self.rng = rng = random.Random(seed)
        self.tally = tally
        self.page_size = rng.choice([1, 3, 16])
        rows = rng.randint(1, 6)
        self.tokens_held = rng.randint(60, 110)
        self.llm, self.sampler = make(
            folder,
            invariant,
            page_size=self.page_size,
            num_pages=-(-self.tokens_held // self.page_size),
            max_num_seqs=rows,
            max_num_batched_tokens=rows + rng.choice([0, 1, 5, 40]),
            batching=BATCHING[rng.choice(sorted(BATCHING))](),
            queue_order=ORDERS[rng.choice(sorted(ORDERS))](),
            chunked_prefill=rng.random() < 0.8,
            prefix_caching=rng.random() < 0.7,
            watermark=rng.choice([0.0, 0.1]),
        )
        shared = prompt(rng, 40)
        self.waiting = [
            shared[: rng.choice([0, 17, 40])] + prompt(rng, rng.randint(1, 16)) for _ in range(6)
        ]
        self.requests: dict[int, list[int]] = {}

    def run(self) -> dict[int, list[int]]:
        """Serve everybody; all tokens of each request by its number."""
        engine = self.llm.engine
        while self.waiting or engine.has_work:
            if self.waiting and (not engine.has_work or self.rng.random() < 0.3):
                self.submit(self.waiting.pop())
            for request in tuple(engine.scheduler._roster.running.values()):
                if self.rng.random() < 0.2 and request.state is RequestState.RUNNING:
                    engine.scheduler.preempt(request, engine.clock())
                    self.tally["preempted"] += 1
            for delta in engine.step():
                self.requests[int(delta.id)] += delta.token_ids
                self.tally[str(delta.finish_reason)] += delta.finish_reason is not None
            engine.pool.check()
        assert engine.pool.num_held == 0
        self.tally["hits"] += sum(row.cached_tokens > 0 for row in engine.trace.requests)
        return self.requests

    def submit(self, tokens: list[int]) -> None:
        number = len(self.requests)
        self.requests[number] = list(tokens)
        params = SamplingParams(max_tokens=self.rng.randint(1, 8), ignore_eos=True)
        priority = self.rng.randint(0, 1)
        self.llm.engine.submit(tokens, params, id=str(number), priority=priority)


def whole(folder: Path, invariant: bool, sequence: list[int], positions: list[int]) -> Logits:
    """Logits of prefixes of `sequence`, each computed in one step on an empty engine."""
    llm, sampler = make(folder, invariant, max_num_batched_tokens=512, prefix_caching=False)
    params = SamplingParams(max_tokens=1, ignore_eos=True)
    for position in positions:
        llm.generate(sequence[:position], params)
    return {(0, p): sampler.logits[n, p] for n, p in enumerate(positions)}


@pytest.mark.parametrize("invariant", [True, False], ids=["bits", "rounding"])
def test_turmoil_changes_no_logit(folder: Path, invariant: bool):
    """Random limits, policies, page sizes, arrivals, preemptions; warm, cold; pools too small."""
    tally: Counter[str] = Counter()
    for seed in range(6):
        turmoil = Turmoil(folder, seed, invariant, tally)
        requests = turmoil.run()
        for number, sequence in requests.items():
            mine = sorted(p for n, p in turmoil.sampler.logits if n == number)
            if not mine:
                continue
            some = sorted({mine[0], mine[-1], turmoil.rng.choice(mine)})
            for (_, position), want in whole(folder, invariant, sequence, some).items():
                got = turmoil.sampler.logits[number, position]
                check_equal(got, want, invariant, (seed, number, position))
    assert tally["preempted"] >= 30 and tally["hits"] >= 5, tally
    assert tally[str(FinishReason.LENGTH)] >= 15, tally


def test_a_long_prompt_takes_memory_for_its_tokens_only(folder: Path, tmp_path: Path):
    """vllm#5907, mlx-vlm#1732: logits of all positions; and a mask of 8,000 × 8,000 is as bad.

    Either is 244 MiB or more; the prompt in one step really takes 45. Linux alone says the peak.
    """
    refs = Path("/proc/self/clear_refs")
    if not refs.exists():
        pytest.skip("only Linux can forget a process's peak memory")

    def peak() -> float:
        (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
        return int(line.split()[1]) / 1024

    wide = make_tiny_llama(tmp_path, vocab_size=16_000)
    llm = LLM(wide, dtype="float32", num_pages=502, max_num_seqs=1, chunked_prefill=False)
    params = SamplingParams(max_tokens=2, ignore_eos=True, logprobs=3)
    llm.generate([70, 71], params)
    refs.write_text("5")
    before = peak()
    (output,) = llm.generate([70 + i % 200 for i in range(8000)], params)
    assert output.finish_reason is FinishReason.LENGTH
    assert max(step.prefill_tokens for step in llm.engine.trace.steps) == 8000
    assert peak() - before < 120
