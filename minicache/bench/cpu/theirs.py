"""Hugging Face transformers as a contestant: `generate` as it comes (sdpa, dynamic cache)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from minicache.bench.cpu.contest import Served


class Stamps:
    """A streamer that notes when each token came; the first call brings the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Tensor) -> None:
        """Called by `generate` with the prompt, then with each token."""
        self.times.append(perf_counter())

    def end(self) -> None:
        """Called by `generate` when it is done."""


class Theirs:
    """Static batches: `slots` prompts, padded on the left, until the longest answer is done."""

    def __init__(self, folder: Path, dtype: str, *, slots: int) -> None:
        """Raises `ModuleNotFoundError` where transformers is not installed."""
        import transformers

        transformers.utils.logging.disable_progress_bar()
        auto: Any = transformers.AutoModelForCausalLM
        self.model: Any = auto.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        self.model.generation_config.eos_token_id = None
        self.slots = slots

    def prefill(self, prompt: Sequence[int]) -> float:
        """Seconds to the first token."""
        begin = perf_counter()
        self._generate([prompt], 1)
        return perf_counter() - begin

    def decode(self, prompt: Sequence[int], count: int) -> float:
        """Seconds a token, from the first to the last of `count`."""
        stamps = Stamps()
        self._generate([prompt], count, streamer=stamps)
        times = stamps.times[-count:]
        return (times[-1] - times[0]) / (count - 1)

    def serve(self, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> Served:
        """One batch after the other, in the order of arrival."""
        begin, steps = perf_counter(), 0
        for first in range(0, len(prompts), self.slots):
            longest = max(counts[first : first + self.slots])
            self._generate(prompts[first : first + self.slots], longest)
            steps += longest
        return Served(perf_counter() - begin, steps)

    def _generate(self, prompts: Sequence[Sequence[int]], count: int, **options: Any) -> None:
        longest = max(map(len, prompts))
        gaps = [longest - len(prompt) for prompt in prompts]
        padded = [[0] * gap + list(p) for gap, p in zip(gaps, prompts, strict=True)]
        mask = [[0] * gap + [1] * len(p) for gap, p in zip(gaps, prompts, strict=True)]
        self.model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
            **options,
        )
