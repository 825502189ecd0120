"""From what people say to prompts of token ids, for any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minicache.demo import document
from minicache.demo.people import CHATS, QUESTION, READER, Part, answer_params, chat_params
from minicache.tokenizer import Tokenizer

Encode = Callable[[str], Sequence[int]]
"""One message of a person → the prompt."""
DOCUMENT_TOKENS = 7000


def encoder(tokenizer: Tokenizer | None, vocab_size: int) -> Encode:
    """The model's chat template; or, where random weights have no tokenizer, a byte for a token."""
    if tokenizer is None:
        return lambda text: [byte % vocab_size for byte in text.encode()]
    return lambda text: tokenizer.chat([{"role": "user", "content": text}])


def parts(encode: Encode, max_model_len: int) -> list[Part]:
    """Three chats, and the longest document that the model's context takes beside its answer."""
    chats = [Part(name, encode(says), chat_params(seed)) for seed, (name, says) in enumerate(CHATS)]
    answer = answer_params()
    limit = min(DOCUMENT_TOKENS, max_model_len - answer.max_tokens)
    text = document.cut(document.text(), limit, lambda text: len(encode(_question(text))))
    return [*chats, Part(READER, encode(_question(text)), answer, is_long=True)]


def _question(text: str) -> str:
    return f"{text}\n\n{QUESTION}"
