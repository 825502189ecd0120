"""Text to token ids and back, as the model's own files say.

The work is done by the `tokenizers` library, which reads the tokenizer.json that comes with a
model. Around it: which ids end a text, how a conversation is written, and decoding that streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from minicache.chat_template import ChatTemplate, Message
from minicache.detokenizer import Detokenizer, TextDecoder
from minicache.request import RequestRefused


class Tokenizer:
    """A model's vocabulary and its conventions.

    Text that spells a special token, such as `<|im_end|>`, becomes that token wherever it stands,
    in a user's message too: the default of transformers, which templates rely on. Whoever serves
    strangers and minds it removes such spellings first; `special_tokens` lists them.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        chat_template: str | None = None,
        named_tokens: Mapping[str, str] | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        """Takes `backend` over. `named_tokens`: `bos_token`, `eos_token` and the like; those that
        the vocabulary has become special: they are recognised in text and not printed.
        """
        named = dict(named_tokens or {})
        self._backend = backend
        backend.no_truncation()
        backend.no_padding()
        backend.add_special_tokens(
            [
                tokenizers.AddedToken(token, special=True)
                for token in sorted(set(named.values()) - self.special_tokens.keys())
                if backend.token_to_id(token) is not None
            ]
        )
        eos = backend.token_to_id(named.get("eos_token", ""))
        self.eos_token_ids = frozenset(eos_token_ids) | ({eos} if eos is not None else set())
        """Any of these ends a text."""
        self._template = None if chat_template is None else ChatTemplate(chat_template, named)
        self._detokenizer = Detokenizer(backend)

    @classmethod
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """Read a model's folder: tokenizer.json, and what the other files there say of it.

        A text ends with any `eos_token_id` of generation_config.json, else of config.json, and with
        the `eos_token` of tokenizer_config.json: chat models often name a different one in each.
        Raises `ValueError` when there is no usable tokenizer.
        """
        folder = Path(folder)
        backend = _read_backend(folder)
        config = _read_json(folder / "tokenizer_config.json")
        return cls(
            backend,
            chat_template=_find_template(folder, config),
            named_tokens=_named_tokens(config),
            eos_token_ids=_read_eos(folder),
        )

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, with added tokens. A model's logits may be wider."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Special tokens as they are spelled, and their ids."""
        added = self._backend.get_added_tokens_decoder()
        return {entry.content: token for token, entry in added.items() if entry.special}

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` works."""
        return self._template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`; with `add_special_tokens`, framed as the model expects (a BOS, say).

        Raises `RequestRefused` for text that is no valid Unicode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestRefused(
                f"The text has half of a surrogate pair at character {error.start}, which no "
                "encoding allows; decode the input with errors='replace'."
            ) from error
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of `tokens`: special tokens are left out, nothing is tidied up.

        Bytes that are no UTF-8 become U+FFFD. It equals the `decode` of the tokenizers library but
        in one case: there, a run of byte tokens with a fault in it loses its good characters too.
        Here they stay, because a stream has shown them already.
        """
        return self._detokenizer.text(tokens)

    def start_text(self) -> TextDecoder:
        """Begin to decode token by token. Joined, the pieces equal `decode` of all the tokens."""
        return self._detokenizer.start()

    def render_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """A conversation as the text that the model was trained on.

        Raises `RequestRefused` when the model has no chat template, or when it objects.
        """
        if self._template is None:
            raise RequestRefused(
                "This model has no chat template, so it was probably not trained to chat; send "
                "plain text as the prompt, or put the template of its chat version into the "
                "model's folder as chat_template.jinja."
            )
        return self._template.render(messages, add_generation_prompt)

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """The ids of a conversation. The template writes BOS and the like, so none is added."""
        text = self.render_chat(messages, add_generation_prompt)
        return self.encode(text, add_special_tokens=False)


def _read_backend(folder: Path) -> tokenizers.Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ValueError(_missing(folder))
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(
            f"{file} is no valid tokenizer ({error}); fetch the file again."
        ) from error


def _missing(folder: Path) -> str:
    if not folder.is_dir():
        return f"There is no folder {folder}; check the path of the model."
    if (folder / "tokenizer.model").is_file() or (folder / "vocab.json").is_file():
        return (
            f"The folder {folder} has a tokenizer of an older form, but no tokenizer.json; let "
            "transformers write it: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
        )
    return (
        f"The folder {folder} has no tokenizer.json, so text cannot be encoded; copy the file from "
        "where the weights came from, or pass token ids as prompts."
    )


def _read_json(file: Path) -> dict[str, Any]:
    """The object in `file`, empty when there is no such file."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no valid JSON ({error}); fetch the file again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds no JSON object; fetch the file again.")
    return content


def _find_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja wins over tokenizer_config.json; of several there, the default."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Entries such as `eos_token`: a string, or in older files an object with a `content`."""
    named: dict[str, str] = {}
    for name, value in config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            named[name] = content
    return named


def _read_eos(folder: Path) -> set[int]:
    for name in ("generation_config.json", "config.json"):
        ids = _read_json(folder / name).get("eos_token_id")
        if ids is not None:
            return set(ids if isinstance(ids, list) else [ids])
    return set()
