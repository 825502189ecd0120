"""From tokens back to text, one token at a time and never looking back.

A token is a few bytes, not a few characters: an emoji may be four tokens. So a token is looked up
as bytes, and an incremental UTF-8 decoder hands out characters when they are complete. That is
constant work a token, where decoding the whole output again at every token would be quadratic.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a vocabulary spells bytes, read from the `decoder` of a tokenizer.json."""

    byte_level: bool = False
    """Every byte is one printable character (GPT-2 and after: SmolLM, Llama 3, Qwen)."""
    byte_fallback: bool = False
    """Tokens like `<0xE2>` are single bytes (SentencePiece models: Llama 2, Mistral, Gemma)."""
    replacements: tuple[tuple[str, str], ...] = ()
    """Replaced in each token, in order: a visible mark by a space."""
    silent_first: str = ""
    """A mark that is dropped, not replaced, in the first token."""
    joiner: str = ""
    """Stands between tokens."""
    strip: tuple[str, int] = ("", 0)
    """A character, and how many of it are dropped from the beginning of the text."""


def read_spelling(decoder: Mapping[str, Any] | None) -> Spelling:
    """Read the `decoder` entry of a tokenizer.json; without one, tokens are words.

    Raises `ValueError` naming the decoder when tokens cannot be spelled one by one.
    """
    if decoder is None:
        return Spelling(joiner=" ")
    spelling, fused = Spelling(), False
    for part in _flatten(decoder):
        spelling = _refine(spelling, part, fused)
        fused = fused or part["type"] in ("Fuse", "ByteLevel")
    return spelling


def _flatten(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        yield decoder
        return
    for part in decoder["decoders"]:
        yield from _flatten(part)


def _refine(spelling: Spelling, part: Mapping[str, Any], fused: bool) -> Spelling:
    """Add one decoder step. Before a fuse it sees single tokens, behind it the whole text."""
    match part:
        case {"type": "Fuse"}:
            return spelling
        case {"type": "ByteLevel"} if not fused and spelling == Spelling():
            return replace(spelling, byte_level=True)
        case {"type": "ByteFallback"} if not fused and not spelling.silent_first:
            return replace(spelling, byte_fallback=True)
        case {"type": "Replace", "pattern": {"String": str(mark)}, "content": str(text)} if (
            not fused and not spelling.byte_fallback
        ):
            return replace(spelling, replacements=(*spelling.replacements, (mark, text)))
        case {"type": "Metaspace", "replacement": str(mark)} if (
            not fused and not spelling.byte_fallback
        ):
            first = "" if part.get("prepend_scheme") == "never" else mark
            replacements = (*spelling.replacements, (mark, " "))
            return replace(spelling, silent_first=first, replacements=replacements)
        case {"type": "Strip", "content": str(char), "start": int(count), "stop": 0} if fused:
            return replace(spelling, strip=(char, count))
        case _:
            raise ValueError(
                f"The tokenizer's decoder has the step {json.dumps(part, ensure_ascii=False)} "
                "at a place where text cannot be streamed token by token; byte-level BPE and "
                "SentencePiece-style byte fallback can. Pass token ids instead of text, or use a "
                "model with such a tokenizer."
            )


def byte_alphabet() -> dict[str, int]:
    """The 256 characters by which byte-level vocabularies write bytes (Radford et al. 2019, GPT-2).

    Printable Latin-1 characters stand for themselves, the other bytes for U+0100 and up, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class Detokenizer:
    """Knows the bytes of every token. Special tokens have none, nor have ids without an entry."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        """Reads the decoder of `backend`; raises `ValueError` when it cannot be streamed."""
        decoder = backend.decoder
        self.spelling = read_spelling(None if decoder is None else json.loads(_state(decoder)))
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._special = {token for token, entry in added.items() if entry.special}
        self._alphabet = byte_alphabet()
        self._pieces: dict[int, bytes | None] = {}

    def piece(self, token: int, first: bool = False) -> bytes | None:
        """The bytes that `token` adds to a text; None when it is as if it were not there."""
        if first:
            return self._spell(token, first)
        if token not in self._pieces:
            self._pieces[token] = self._spell(token, first)
        return self._pieces[token]

    def start(self) -> TextDecoder:
        """Begin a text."""
        return TextDecoder(self)

    def text(self, tokens: Iterable[int]) -> str:
        """The text of all `tokens`, the same as decoding them one by one."""
        decoder = self.start()
        return "".join([*map(decoder.push, tokens), decoder.flush()])

    def _spell(self, token: int, first: bool) -> bytes | None:
        word = None if token in self._special else self._backend.id_to_token(token)
        if word is None:
            return None
        spelling = self.spelling
        if spelling.byte_level:
            # An added token with a character outside the alphabet stands for itself.
            known = all(char in self._alphabet for char in word)
            return bytes(self._alphabet[char] for char in word) if known else word.encode()
        if spelling.byte_fallback and (match := _BYTE_TOKEN.fullmatch(word)):
            return bytes.fromhex(match[1])
        if first and spelling.silent_first:
            word = word.replace(spelling.silent_first, "")
        for mark, text in spelling.replacements:
            word = word.replace(mark, text)
        return (word if first else spelling.joiner + word).encode()


class TextDecoder:
    """One text on its way out: `push` tokens, then `flush` once."""

    __slots__ = ("_detokenizer", "_first", "_strip_char", "_strip_left", "_utf8")

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._detokenizer = detokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._first = True
        self._strip_char, self._strip_left = detokenizer.spelling.strip

    def push(self, token: int) -> str:
        """The characters that `token` completes; '' while it ends inside one.

        Bytes that can never become a character are U+FFFD at once, one for each maximal run that
        could have begun one: the Unicode standard's practice (section 3.9), Rust's and Python's.
        """
        piece = self._detokenizer.piece(token, self._first)
        if piece is None:
            return ""
        self._first = False
        return self._strip(self._utf8.decode(piece))

    def flush(self) -> str:
        """What is left at the end: U+FFFD when the text stops inside a character, else ''."""
        return self._strip(self._utf8.decode(b"", True))

    def _strip(self, text: str) -> str:
        while self._strip_left and text:
            if text[0] != self._strip_char:
                self._strip_left = 0
            else:
                self._strip_left -= 1
                text = text[1:]
        return text


def _state(decoder: Any) -> bytes:
    # What pickling a decoder stores is its entry of tokenizer.json, without the vocabulary.
    return decoder.__getstate__()
