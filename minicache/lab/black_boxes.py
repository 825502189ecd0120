"""The finished model and engine, as black boxes: lessons use them before they have built them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from minicache import LLM
from minicache.attention import PerSequence, naive_attention
from minicache.attention.per_sequence import SequenceAttention
from minicache.demo import document as demo_document
from minicache.kv_cache import PagedKVCache
from minicache.model import Attentions, Decoder, StepInputs
from minicache.model_config import ModelConfig
from minicache.protocols import AttentionBatch
from minicache.tokenizer import Tokenizer
from minicache.weights import load

PAGE_SIZE = 16
MODEL = "smollm2-135m"


class ForgetfulModel:
    """The real model without a memory: it reads the whole sequence anew for every next token.

    Call it with all tokens so far; it returns `(V,)` float32, the logits of the next one. The
    attention is an argument, so that a learner's function drives the real weights.
    """

    def __init__(
        self, decoder: Decoder, tokenizer: Tokenizer, attention: SequenceAttention
    ) -> None:
        self.config: ModelConfig = decoder.config
        self.tokenizer = tokenizer
        self._decoder = decoder
        self._attention = attention

    @torch.inference_mode()
    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """All tokens so far → logits of the next token, `(V,)` float32."""
        pages = -(-len(tokens) // PAGE_SIZE)
        cache = PagedKVCache(self.config, pages, PAGE_SIZE, dtype=self._decoder.dtype)
        attention = PerSequence(self._attention)
        logits = self._decoder(whole_sequence(tokens), cache, Attentions(attention, attention))
        return logits[0].float()

    def with_attention(self, attention: SequenceAttention) -> ForgetfulModel:
        """The same weights with another attention."""
        return ForgetfulModel(self._decoder, self.tokenizer, attention)


def whole_sequence(tokens: Sequence[int]) -> StepInputs:
    """One step that computes every token of one sequence and asks for the last row's logits."""
    length = len(tokens)
    positions = torch.arange(length)
    columns = -(-length // PAGE_SIZE)
    batch = AttentionBatch(
        query_starts=torch.tensor([0, length], dtype=torch.int32),
        lengths=torch.tensor([length], dtype=torch.int32),
        page_table=torch.arange(columns, dtype=torch.int32)[None],
        max_query=length,
        max_length=length,
        host_query_starts=(0, length),
        host_lengths=(length,),
    )
    return StepInputs(
        tokens=torch.tensor(tokens),
        positions=positions,
        pages=positions // PAGE_SIZE,
        offsets=positions % PAGE_SIZE,
        sampled=torch.tensor([length - 1]),
        num_decode_rows=0,
        decodes=None,
        chunks=batch,
    )


def model(attention: SequenceAttention = naive_attention, *, name: str = MODEL) -> ForgetfulModel:
    """The real model in float32, with no KV cache, attending with `attention`.

    Raises `ModelError` with the command that fetches the model where it is not on this machine.
    """
    checkpoint = load(name, dtype=torch.float32)
    assert checkpoint.folder is not None, "a loaded checkpoint has a folder"
    decoder = Decoder(checkpoint.config, checkpoint.tensors, dtype=torch.float32)
    return ForgetfulModel(decoder, Tokenizer.from_folder(checkpoint.folder), attention)


def document(tokenizer: Tokenizer, tokens: int) -> str:
    """A real text of at most `tokens` tokens, whole lines: the source of this engine."""
    return demo_document.cut(demo_document.text(), tokens, lambda text: len(tokenizer.encode(text)))


def engine(name: str = MODEL, **options: Any) -> LLM:
    """The finished engine; `options` are those of `minicache.LLM`."""
    return LLM(name, **options)
