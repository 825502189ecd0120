"""Small random decoders, and hand-made plans that drive them through the real runner.

model = tiny_model("qwen2")
driver = Driver(model)
row = driver.admit([5, 3, 9])
driver.step([(row, 0, 2)])
driver.step([(row, 2, 3)])
driver.logits[row, 3]  # what the model says about position 3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from minicache.kv_cache import PagedKVCache
from minicache.model import Decoder
from minicache.model_config import Architecture, ModelConfig, RopeScaling, tensor_shapes
from minicache.plan import Admission, PageEntry, PlanItem, StepPlan, StepResult
from minicache.request import SamplingParams
from minicache.runner import ModelRunner
from minicache.sampler import SampledTokens, Sampler

SCALING = RopeScaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
FAMILY: dict[str, dict[str, Any]] = {
    "llama": {"rope_scaling": SCALING},
    "qwen2": {"attention_bias": True, "tie_word_embeddings": True},
    "qwen3": {"qk_norm": True, "head_dim": 24},
}


def tiny_config(architecture: str = "llama", **changes: Any) -> ModelConfig:
    """Two layers, 6 query heads on 2 KV heads, and what is special of the architecture."""
    values: dict[str, Any] = {
        "name": f"tiny-{architecture}",
        "architecture": Architecture(architecture),
        "num_layers": 2,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 16,
        "vocab_size": 131,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
    }
    return ModelConfig(**(values | FAMILY[architecture] | changes))


def tiny_tensors(config: ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    """Random weights, large enough that attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in tensor_shapes(config).items():
        values = torch.randn(shape, generator=generator)
        if name.endswith("norm.weight"):
            tensors[name] = 1 + 0.2 * values
        else:
            tensors[name] = values * (0.3 if name.endswith("bias") else 1.5 * shape[-1] ** -0.5)
    return tensors


def tiny_model(
    architecture: str = "llama",
    *,
    dtype: torch.dtype = torch.float32,
    batch_invariant: bool = False,
    **changes: Any,
) -> Decoder:
    config = tiny_config(architecture, **changes)
    return Decoder(config, tiny_tensors(config), dtype=dtype, batch_invariant=batch_invariant)


class RecordingSampler:
    """The real sampler, and the logits that it was given, by (row, position)."""

    def __init__(self) -> None:
        self.sampler = Sampler(seed=0)
        self.logits: dict[tuple[int, int], Tensor] = {}
        self.owner: dict[int, int] = {}

    def admit(self, row: int, number: int, params: SamplingParams) -> None:
        self.owner[row] = number
        self.sampler.admit(row, number, params)

    def __call__(
        self, logits: Tensor, rows: Sequence[int], positions: Sequence[int]
    ) -> SampledTokens:
        for row, position, values in zip(rows, positions, logits, strict=True):
            self.logits[self.owner[row], position] = values.clone()
        return self.sampler(logits, rows, positions)


class Driver:
    """Rows, pages and plans by hand. The cache is full of NaN where nothing was written."""

    def __init__(
        self,
        model: Decoder,
        *,
        num_pages: int = 96,
        page_size: int = 16,
        num_rows: int = 8,
        max_model_len: int = 256,
        **parts: Any,
    ) -> None:
        self.model = model
        self.cache = PagedKVCache(model.config, num_pages, page_size, dtype=model.dtype)
        for pages in (*self.cache.k_pages, *self.cache.v_pages):
            pages.fill_(torch.nan)
        self.sampler = RecordingSampler()
        self.runner = ModelRunner(
            model,
            self.cache,
            self.sampler,
            num_rows=num_rows,
            max_model_len=max_model_len,
            **parts,
        )
        self.tokens: dict[int, list[int]] = {}
        self.pages: dict[int, list[int]] = {}
        self._free = list(range(num_pages))  # the highest ids are taken first
        self._admissions: list[Admission] = []
        self._entries: list[PageEntry] = []
        self._steps = 0

    @property
    def logits(self) -> dict[tuple[int, int], Tensor]:
        """By (number, position of the token they predict). Here a row keeps its number."""
        return self.sampler.logits

    def admit(
        self,
        tokens: Sequence[int],
        params: SamplingParams | None = None,
        *,
        row: int | None = None,
        shared: Sequence[int] = (),
    ) -> int:
        """A request, new or (with `row`) after a preemption; `shared` are its first pages."""
        row = len(self.tokens) if row is None else row
        self._free = [*self._free, *self.pages.get(row, ())]
        self.tokens[row], self.pages[row] = list(tokens), []
        self._admissions.append(Admission(row, row, params or SamplingParams()))
        for page in shared:
            self._give(row, page)
        return row

    def _give(self, row: int, page: int) -> None:
        self._entries.append(PageEntry(row, len(self.pages[row]), page))
        self.pages[row].append(page)

    def plan(self, work: Sequence[tuple[int, int, int]], *, in_flight: bool = False) -> StepPlan:
        """A step that computes positions [start, stop) of each `(row, start, stop)`."""
        items: list[PlanItem] = []
        for row, start, stop in sorted(work, key=lambda w: w[2] - w[1] > 1):
            while len(self.pages[row]) * self.cache.page_size < stop:
                self._give(row, self._free.pop())
            known = self.tokens[row]
            tokens = known[start:stop] if not in_flight else []
            items.append(PlanItem(row, row, start, stop, stop >= len(known), tokens))
        decodes = sum(item.stop - item.start == 1 for item in items)
        total = sum(item.stop - item.start for item in items)
        admissions, self._admissions = self._admissions, []
        entries, self._entries = self._entries, []
        self._steps += 1
        return StepPlan(self._steps, items, decodes, total, total, admissions, entries)

    def step(self, work: Sequence[tuple[int, int, int]], *, in_flight: bool = False) -> StepResult:
        """Run it, and append what was sampled."""
        plan = self.plan(work, in_flight=in_flight)
        self.runner.submit(plan)
        result = self.runner.collect()
        sampling = [item for item in plan.items if item.samples]
        for item, token in zip(sampling, result.tokens, strict=True):
            if item.number not in result.errors:
                self.tokens[item.row].append(token)
        return result

    def generate(self, row: int, count: int, chunk: int = 512) -> list[int]:
        """Compute what is not stored yet in chunks, then decode; returns the new tokens."""
        prompt, done = len(self.tokens[row]), 0
        while len(self.tokens[row]) < prompt + count:
            stop = min(len(self.tokens[row]), done + chunk)
            self.step([(row, done, stop)])
            done = stop
        return self.tokens[row][prompt:]


def prompt(length: int, seed: int = 0, vocabulary: int = 131) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocabulary, (length,), generator=generator).tolist()
