"""The engine as a contestant, driven as a user drives it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from minicache.bench.cpu.contest import Served
from minicache.llm import LLM
from minicache.request import SamplingParams


class Ours:
    """Continuous batching through `slots` slots. No prefix cache: each repeat is work again."""

    def __init__(
        self,
        folder: Path,
        dtype: str,
        *,
        slots: int,
        budget: int,
        num_pages: int,
        batch_invariant: bool = False,
    ) -> None:
        self.llm = LLM(
            folder,
            device="cpu",
            dtype=dtype,
            num_pages=num_pages,
            max_num_seqs=slots,
            max_num_batched_tokens=budget,
            prefix_caching=False,
            batch_invariant=batch_invariant,
        )

    def prefill(self, prompt: Sequence[int]) -> float:
        """Seconds to the first token."""
        begin = perf_counter()
        self._submit(prompt, 1)
        return self._run()[-1] - begin

    def decode(self, prompt: Sequence[int], count: int) -> float:
        """Seconds a token, from the first to the last of `count`."""
        self._submit(prompt, count)
        stamps = self._run()[-count:]
        return (stamps[-1] - stamps[0]) / (count - 1)

    def serve(self, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> Served:
        """All requests are there at once and wait for a slot."""
        begin = perf_counter()
        for prompt, count in zip(prompts, counts, strict=True):
            self._submit(prompt, count)
        stamps = self._run()
        return Served(stamps[-1] - begin, len(stamps))

    def _submit(self, prompt: Sequence[int], count: int) -> None:
        self.llm.engine.submit(prompt, SamplingParams(max_tokens=count, ignore_eos=True))

    def _run(self) -> list[float]:
        """Step until nothing is left; when each step ended."""
        engine = self.llm.engine
        stamps: list[float] = []
        while engine.has_work:
            for delta in engine.step():
                if delta.error:
                    raise RuntimeError(f"The engine failed in the benchmark: {delta.error}")
            stamps.append(perf_counter())
        engine.reset_trace()
        return stamps
