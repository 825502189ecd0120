"""`LLM`: a model by name, ready to generate. Builds the parts and puts them together."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import torch

from minicache.arguments import is_whole
from minicache.build import affordable_pages, by_name, context_length, source_line
from minicache.chat_template import Message
from minicache.core import EngineCore
from minicache.engine import Delta, Engine
from minicache.hardware import choose_device, choose_dtype
from minicache.kv_cache import PagedKVCache
from minicache.mailroom import Mailroom
from minicache.model import Decoder
from minicache.page_pool import PagePool
from minicache.plan import TokenLogprobs
from minicache.policy import BATCHING, ORDERS, BatchingPolicy, QueueOrder
from minicache.protocols import PagedAttention
from minicache.request import FinishReason, SamplingParams
from minicache.runner import ModelRunner, TokenSampler
from minicache.sampler import Sampler
from minicache.scheduler import Scheduler, SchedulerConfig
from minicache.tokenizer import Tokenizer
from minicache.trace import Trace
from minicache.weights import load

Prompt = str | Sequence[int]
"""Text, or token ids."""


@dataclass(slots=True)
class RequestOutput:
    """One prompt's answer."""

    id: str
    prompt: Prompt
    token_ids: list[int] = field(default_factory=list[int])
    text: str = ""
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    """One a token, if they were asked for."""

    def take(self, delta: Delta) -> None:
        """Add what a step brought."""
        self.token_ids += delta.token_ids
        self.text += delta.text
        self.finish_reason, self.error = delta.finish_reason, delta.error
        if delta.logprobs is not None:
            self.logprobs.append(delta.logprobs)


class LLM:
    """A model that generates: `with LLM() as llm: llm.generate("The capital of France is")`."""

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        load_format: str = "auto",
        page_size: int = 16,
        num_pages: int | None = None,
        kv_memory: int | None = None,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 512,
        max_model_len: int | None = None,
        batching: str | BatchingPolicy = "mixed",
        queue_order: str | QueueOrder = "fcfs",
        chunked_prefill: bool = True,
        prefix_caching: bool = True,
        watermark: float = 0.0,
        batch_invariant: bool = False,
        seed: int | None = None,
        page_pool: PagePool | None = None,
        sampler: TokenSampler | None = None,
        decode_attention: PagedAttention | None = None,
        prefill_attention: PagedAttention | None = None,
    ) -> None:
        """Load `model` (a known name, a folder, a hub id) and make an engine for it.

        The pool has `num_pages` pages of `page_size` tokens, or as fit in `kv_memory` bytes.
        `seed` serves the requests that bring none. The last four arguments take parts of your own.
        Raises `ValueError` in one sentence for what does not fit together, before memory is taken.
        """
        place = choose_device(device)
        precision = choose_dtype(dtype, place)
        policy = by_name("batching", batching, BATCHING)
        order = by_name("queue_order", queue_order, ORDERS)
        checkpoint = load(model, load_format=load_format, dtype=precision, device=place)
        config = checkpoint.config
        context = context_length(max_model_len, config)
        tokenizer = Tokenizer.from_folder(checkpoint.folder) if checkpoint.folder else None
        limits = SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=context,
            chunked_prefill=chunked_prefill,
            watermark=watermark,
            eos_token_ids=frozenset(config.eos_token_ids)
            | (tokenizer.eos_token_ids if tokenizer else frozenset()),
        )
        if page_pool is None:
            if num_pages is None:
                affordable = affordable_pages(config, kv_memory, page_size, precision)
                num_pages = min(affordable, max_num_seqs * -(-context // page_size))
            page_pool = PagePool(num_pages, page_size, prefix_caching=prefix_caching)
        executor = ModelRunner(
            Decoder(
                config,
                checkpoint.tensors,
                dtype=precision,
                device=place,
                max_positions=context,
                batch_invariant=batch_invariant,
            ),
            PagedKVCache(
                config, page_pool.num_pages, page_pool.page_size, dtype=precision, device=place
            ),
            sampler or Sampler(seed),
            num_rows=max_num_seqs,
            max_model_len=context,
            decode_attention=decode_attention,
            prefill_attention=prefill_attention,
            clock=time.perf_counter,
        )
        scheduler = Scheduler(page_pool, limits, policy, order)
        trace = Trace(source_line(config, place, precision), page_size=page_pool.page_size)
        core = EngineCore(scheduler, page_pool, executor, trace, time.perf_counter)
        self.config = config
        self.engine = Engine(core, tokenizer)
        self._mail = Mailroom(self.engine)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises `ValueError` where the model has none."""
        if self.engine.tokenizer is None:
            raise ValueError(
                f"{self.config.name} has no tokenizer here; use token ids, or a model folder with "
                "a tokenizer.json."
            )
        return self.engine.tokenizer

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None
    ) -> list[RequestOutput]:
        """Answer one prompt or several, together, in their order.

        A prompt that is refused raises `RequestRefused`, and none is answered. If anything else
        raises, Ctrl-C included, the requests are cancelled and their pages are free again.
        """
        outputs: dict[str, RequestOutput] = {}
        with self._cancelled_on_exit(outputs):
            for prompt in _several(prompts):
                id = self._submit(prompt, params)
                outputs[id] = RequestOutput(id, prompt)
            for id, output in outputs.items():
                while output.finish_reason is None:
                    for delta in self._mail.collect(id):
                        output.take(delta)
        return list(outputs.values())

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Delta]:
        """Answer one prompt as its tokens come. Closing the iterator cancels the request.

        Several streams may be read by turns, and `generate` called in between.
        """
        id = self._submit(prompt, params)
        output = RequestOutput(id, prompt)
        with self._cancelled_on_exit({id: output}):
            while output.finish_reason is None:
                for delta in self._mail.collect(id):
                    output.take(delta)
                    yield delta

    def chat(
        self, messages: Sequence[Message], params: SamplingParams | None = None
    ) -> RequestOutput:
        """Answer a conversation, `[{"role": "user", "content": "…"}]`, by the model's template."""
        return self.generate(self.tokenizer.chat(messages), params)[0]

    def close(self) -> None:
        """Give the memory back. The trace stays readable."""
        self.engine.core.executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def _submit(self, prompt: Prompt, params: SamplingParams | None) -> str:
        id = self.engine.submit(prompt, params)
        self._mail.rent(id)
        return id

    @contextmanager
    def _cancelled_on_exit(self, outputs: Mapping[str, RequestOutput]) -> Generator[None]:
        """Leave no request behind that nobody will read."""
        try:
            yield
        finally:
            unread = [id for id, output in outputs.items() if output.finish_reason is None]
            for id in unread:
                self.engine.cancel(id)
            if unread:
                self._mail.turn()  # brings their last deltas, and the pages of a step in flight
            for id in outputs:
                self._mail.give_up(id)


def _several(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt is a text, or a sequence of ids; any other sequence is several.

    What is neither counts as one prompt: submitting it says what is wrong with it.
    """
    if isinstance(prompts, (str, bytes)) or not isinstance(cast(object, prompts), Iterable):
        return [cast(Prompt, prompts)]
    several = list(prompts)
    is_one = bool(several) and is_whole(several[0])
    return [cast(Sequence[int], several)] if is_one else cast(list[Prompt], several)
