"""Small tokenizers of every kind that models use, made on the spot.

Each function returns a fresh `tokenizers.Tokenizer`. The vocabularies are tiny, so that random ids
soon spell every awkward thing: halves of characters, marks in the first place, broken runs.
"""

from functools import cache

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CORPUS = [
    "the cat sat on the mat, and then the other cat sat there too",
    "naïve café, Ångström, 日本語の文章です, 日本の猫",
    "👩‍👩‍👧 and 👍🏽 and 🇫🇷 again 👩‍👩‍👧",
    "for i in range(10):\n    print(i)\n\nENDEND stop STOP",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN_ADDED = ["<think>", "</think>", "<tool call>", "«é»", "日本", "<|spécial  x|>"]


@cache
def _byte_level_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False) for text in PLAIN_ADDED])
    return tokenizer.to_str()


def byte_level() -> Tokenizer:
    """Byte-level BPE, as SmolLM, Qwen and Llama 3 have; every byte is a token of its own too."""
    return Tokenizer.from_str(_byte_level_json())


def _sentencepiece_model() -> models.BPE:
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words += [
        "▁",
        "▁▁",
        "▁▁▁▁",
        *"thecasonm日本語 .,",
        "th",
        "▁t",
        "▁the",
        "cat",
        "▁cat",
        "é",
        "é▁",
    ]
    words += ["ca", "▁c", "he", "▁<0x41>", "<0xZZ>", "ab▁▁cd"]
    merges = [("t", "h"), ("▁", "t"), ("▁t", "he"), ("h", "e"), ("c", "a"), ("ca", "t"), ("▁", "▁")]
    merges += [("▁", "c"), ("▁", "cat"), ("▁▁", "▁▁")]
    vocab = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True)


def sentencepiece(strip: bool = True) -> Tokenizer:
    """BPE with byte fallback: with `strip` as Llama 2 and Mistral, without as Gemma."""
    tokenizer = Tokenizer(_sentencepiece_model())
    tokenizer.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend("▁")] if strip else []), normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def metaspace(prepend_scheme: str = "always") -> Tokenizer:
    """Words marked by ▁, where a mark on the first token is not a space."""
    vocab = ["<unk>", "▁", "▁▁", "▁the", "▁cat", "cat", "s", "▁a▁b", "日本", "👍", "é"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocab)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


def words() -> Tokenizer:
    """Whole words and no decoder: the library then joins tokens by spaces."""
    vocab = ["<unk>", "the", "cat", "s", "日本", "👍", " ", "é"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocab)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer
