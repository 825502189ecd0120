"""The tokenizer in a GGUF file, as the tokenizer.json that the `tokenizers` library reads.

A byte-level BPE: text is split into words, bytes become printable characters, merges join them. The
file names its word splitter in `tokenizer.ggml.pre`; only SmolLM's is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from minicache.model_config import ModelError
from minicache.models.gguf_file import GgufFile

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

_TOKENS = "tokenizer.ggml.tokens"
_MATCHED_WHOLE = (3, 4)
"""GGUF token types: control and user-defined tokens are never split or merged."""
_ROLES: Mapping[str, str] = MappingProxyType(
    {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
)


def gguf_tokenizer(file: GgufFile) -> Tokenizer:
    """Vocabulary, merges and special tokens of the file, behind SmolLM's word splitter.

    Raises `ModelError` for a tokenizer of another kind.
    """
    from tokenizers import Tokenizer, decoders

    _check_kind(file)
    tokenizer = Tokenizer(_byte_pairs(file))
    tokenizer.pre_tokenizer = _smollm_words()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_special_tokens(file))
    return tokenizer


def tokenizer_settings(file: GgufFile) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by role, and the chat template where there is one."""
    tokens = file.fields.strings(_TOKENS)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": file.fields.flag("tokenizer.ggml.add_bos_token"),
        "add_prefix_space": file.fields.flag("tokenizer.ggml.add_space_prefix"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.fields.integer("llama.context_length"),
    }
    for role, number in special_token_ids(file).items():
        settings[f"{role}_token"] = tokens[number]
    template = file.fields.string("tokenizer.chat_template", "")
    return settings | ({"chat_template": template} if template else {})


def special_token_ids(file: GgufFile) -> dict[str, int]:
    """Token ids by role: bos, eos, unk, pad, as far as the file names them."""
    size = len(file.fields.strings(_TOKENS))
    found: dict[str, int] = {}
    for role, word in _ROLES.items():
        for number in file.fields.token_ids(f"tokenizer.ggml.{word}_token_id"):
            if number >= size:
                raise ModelError(
                    f"{file.path} has {role} token {number}, but only {size} tokens; fetch it"
                    " again."
                )
            found[role] = number
    return found


def _check_kind(file: GgufFile) -> None:
    """Other settings than SmolLM's would give other tokens."""
    fields, elsewhere = file.fields, "use the model's safetensors release"
    for key, wanted in (("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm")):
        if fields.string(key, "default") != wanted:
            fields.refuse(key, f"only {wanted!r} is read from GGUF; {elsewhere}")
    for key in ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix"):
        if fields.flag(key):
            fields.refuse(key, f"only false is read from GGUF; {elsewhere}")


def _byte_pairs(file: GgufFile) -> Any:
    from tokenizers import models

    tokens = file.fields.strings(_TOKENS)
    merges = file.fields.strings("tokenizer.ggml.merges")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelError(f"{file.path} holds the same token twice; fetch it again.")
    try:
        return models.BPE(vocab=vocabulary, merges=pairs)
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(
            f"{file.path} has merges that do not fit its tokens ({error}); fetch it again."
        ) from error


def _smollm_words() -> PreTokenizer:
    """Each digit alone, then GPT-2's words; no space is put before the text."""
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Sequence([digits, words])


def _special_tokens(file: GgufFile) -> list[AddedToken]:
    """Tokens that are matched whole in a text, such as <|im_start|>."""
    from tokenizers import AddedToken

    tokens = file.fields.strings(_TOKENS)
    types = file.fields.token_ids("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise ModelError(
            f"{file.path} has {len(tokens)} tokens, but {len(types)} token types; fetch it again."
        )
    special = (token for token, kind in zip(tokens, types, strict=True) if kind in _MATCHED_WHOLE)
    return [AddedToken(token, special=True, normalized=False) for token in special]
