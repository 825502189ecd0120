"""The executor with a real model: StepPlan → tensors → logits → tokens → StepResult."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from minicache.attention import InvariantAttention, TorchPagedAttention
from minicache.kv_cache import PagedKVCache
from minicache.model import Attentions, Decoder, StepInputs
from minicache.plan import Admission, PlanItem, StepPlan, StepResult, TokenLogprobs
from minicache.protocols import AttentionBatch, PagedAttention
from minicache.request import SamplingParams
from minicache.runner.checks import impossible, unknown_tokens, whole_tokens
from minicache.runner.pack import HostStep, pack
from minicache.runner.page_table import PageTable
from minicache.sampler import SampledTokens


class TokenSampler(Protocol):
    """Chooses tokens; remembers who holds which row. `minicache.sampler.Sampler` is one."""

    def admit(self, row: int, number: int, params: SamplingParams) -> None:
        """`row` now belongs to request `number`."""
        ...

    def __call__(
        self, logits: Tensor, rows: Sequence[int], positions: Sequence[int]
    ) -> SampledTokens:
        """`logits: (R, V)`; `positions[i]` is where the new token of `rows[i]` will stand."""
        ...


@dataclass(slots=True)
class _Outcome:
    """What came of a step so far, by request number."""

    tokens: dict[int, int] = field(default_factory=dict[int, int])
    logprobs: dict[int, TokenLogprobs] = field(default_factory=dict[int, TokenLogprobs])
    errors: dict[int, str] = field(default_factory=dict[int, str])

    def token(self, number: int) -> int:
        """What was sampled; -1 keeps the place of an item that failed."""
        return -1 if number in self.errors else self.tokens[number]


class ModelRunner:
    """Implements `protocols.Executor`: a decoder, its cache, a sampler and a page table.

    One request's failure is its own. An unknown token id or logits without a finite maximum end
    that request. A step that raises is run again item by item, which is safe because an item always
    writes the same values to the same slots; only items that raise alone end with an error.
    """

    def __init__(
        self,
        model: Decoder,
        cache: PagedKVCache,
        sampler: TokenSampler,
        *,
        num_rows: int,
        max_model_len: int,
        decode_attention: PagedAttention | None = None,
        prefill_attention: PagedAttention | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`num_rows` bounds the row numbers of plans, `max_model_len` a sequence; `clock()` gives
        seconds. Attention parts that are not given are chosen for the model: `InvariantAttention`
        where it is batch-invariant, else `TorchPagedAttention`.
        """
        self.max_in_flight = 1
        self._model = model
        self._cache = cache
        self._sampler = sampler
        self._clock = clock
        default = InvariantAttention() if model.batch_invariant else TorchPagedAttention()
        self._attend = Attentions(decode_attention or default, prefill_attention or default)
        self._table = PageTable(num_rows, -(-max_model_len // cache.page_size))
        self._last_tokens = torch.zeros(num_rows, dtype=torch.int64, device=model.device)
        self._done: deque[StepResult] = deque()

    def submit(self, plan: StepPlan) -> None:
        """Run a step. On a CPU it is finished when this returns."""
        t_start = self._clock()
        outcome = _Outcome(errors=unknown_tokens(plan.items, self._model.config.vocab_size))
        for admission in plan.admissions:
            self._table.forget(admission.row)
            self._admit(admission, outcome)
        self._table.apply(plan.entries)
        self._run_isolated([i for i in plan.items if i.number not in outcome.errors], outcome)
        self._done.append(self._result(plan, outcome, t_start))

    def collect(self) -> StepResult:
        """The result of the oldest step that was submitted and not collected."""
        return self._done.popleft()

    def close(self) -> None:
        """Nothing to release: memory goes with the last reference."""

    def _admit(self, admission: Admission, outcome: _Outcome) -> None:
        """Tell the sampler of a row's new owner. Where it objects, that request ends."""
        try:
            self._sampler.admit(*admission)
        except Exception as error:
            reason = f"The sampler did not take it: {type(error).__name__}: {error}"
            outcome.errors[admission.number] = reason

    def _run_isolated(self, items: Sequence[PlanItem], outcome: _Outcome) -> None:
        """Run together; if that raises, run one by one and let each answer for itself."""
        if not items:
            return
        try:
            self._run(items, outcome)
        except Exception as error:
            if len(items) == 1:
                outcome.errors[items[0].number] = (
                    f"The step failed: {type(error).__name__}: {error}"
                )
                return
            for item in items:
                self._run_isolated([item], outcome)

    @torch.inference_mode()
    def _run(self, items: Sequence[PlanItem], outcome: _Outcome) -> None:
        """One forward pass and the sampling of its last rows."""
        host = pack(items, self._table.entries, self._cache.page_size)
        logits = self._model(self._inputs(items, host), self._cache, self._attend)
        sampling = [item for item in items if item.samples]
        if not sampling:
            return
        rows = [item.row for item in sampling]
        chosen = self._sampler(logits, rows, [item.stop for item in sampling])
        tokens = whole_tokens(chosen.tokens, len(rows))
        number = {item.row: item.number for item in sampling}
        outcome.tokens |= zip(number.values(), tokens, strict=True)
        outcome.errors |= impossible(outcome.tokens, self._model.config.vocab_size)
        known = [outcome.token(item.number) for item in sampling]
        self._last_tokens[rows] = torch.tensor(known, device=self._model.device)
        outcome.logprobs |= {number[row]: value for row, value in chosen.logprobs.items()}
        outcome.errors |= {number[row]: reason for row, reason in chosen.failed.items()}

    def _inputs(self, items: Sequence[PlanItem], host: HostStep) -> StepInputs:
        """To the model's device, with tokens in flight filled in there."""
        tokens, positions, pages, offsets, sampled = (
            torch.from_numpy(array).to(self._model.device)
            for array in (host.tokens, host.positions, host.pages, host.offsets, host.sampled)
        )
        if host.in_flight:
            here, rows = zip(*host.in_flight, strict=True)
            tokens[list(here)] = self._last_tokens[list(rows)]
        longer = (b for b, item in enumerate(items) if item.stop - item.start > 1)
        num_decodes = next(longer, len(items))
        return StepInputs(
            tokens=tokens,
            positions=positions,
            pages=pages,
            offsets=offsets,
            sampled=sampled,
            num_decode_rows=num_decodes,
            decodes=self._batch(items, host, 0, num_decodes),
            chunks=self._batch(items, host, num_decodes, len(items)),
        )

    def _batch(
        self, items: Sequence[PlanItem], host: HostStep, first: int, last: int
    ) -> AttentionBatch | None:
        """The attention batch of `items[first:last]`; None when there are none."""
        if first == last:
            return None
        starts = host.starts[first : last + 1] - host.starts[first]
        lengths = host.lengths[first:last]
        longest = int(lengths.max())
        columns = -(-longest // self._cache.page_size)
        table = self._table.entries[[item.row for item in items[first:last]], :columns]
        device = self._model.device
        return AttentionBatch(
            query_starts=torch.from_numpy(starts).to(device),
            lengths=torch.from_numpy(lengths).to(device),
            page_table=torch.from_numpy(table).to(device),
            max_query=int((starts[1:] - starts[:-1]).max()),
            max_length=longest,
            host_query_starts=tuple(starts.tolist()),
            host_lengths=tuple(lengths.tolist()),
        )

    def _result(self, plan: StepPlan, outcome: _Outcome, t_start: float) -> StepResult:
        return StepResult(
            step=plan.step,
            tokens=[outcome.token(item.number) for item in plan.items if item.samples],
            t_start=t_start,
            t_end=self._clock(),
            logprobs=outcome.logprobs,
            errors=outcome.errors,
        )
