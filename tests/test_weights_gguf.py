"""GGUF files: tensors, config and tokenizer against transformers and against first principles."""

import hashlib
import json
import os
import struct
from pathlib import Path
from unicodedata import category

import gguf
import numpy as np
import pytest
import regex
import tiny_gguf
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from minicache import models, weights
from minicache.model_config import CONFIGS, ModelError, parse_config
from minicache.models.catalog import SMOLLM2_WHEEL
from minicache.models.convert import convert_gguf, plan_shards


@pytest.fixture(autouse=True)
def _own_cache(request, tmp_path, monkeypatch):
    if "model" not in request.keywords:
        monkeypatch.setenv("MINICACHE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tiny_gguf.write_gguf(path, tiny_gguf.tiny_llama(), "Q8_0")
    return path


def refusal(path):
    with pytest.raises(ModelError) as caught:
        weights.load(path)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and path.name in message
    return message


@pytest.mark.parametrize("tied", [True, False])
def test_float32_file_gives_back_the_very_model(tied, tmp_path):
    model = tiny_gguf.tiny_llama(tied)
    tiny_gguf.write_gguf(tmp_path / "tiny.gguf", model)
    checkpoint = weights.load(tmp_path / "tiny.gguf")
    expected = dict(model.named_parameters())
    assert checkpoint.tensors.keys() == expected.keys()
    assert all(torch.equal(checkpoint.tensors[name], value) for name, value in expected.items())
    assert checkpoint.config == parse_config(model.config.to_dict(), "tiny")
    again = AutoModelForCausalLM.from_pretrained(checkpoint.folder)
    tokens = torch.arange(40)[None]
    assert torch.equal(again(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("quantization", ["F16", "Q8_0", "Q4_1"])
def test_dequantized_as_transformers_does(quantization, tmp_path):
    model, path = tiny_gguf.tiny_llama(), tmp_path / "tiny.gguf"
    tiny_gguf.write_gguf(path, model, quantization)
    ours = weights.load(path).tensors
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name
    assert not torch.equal(ours["model.embed_tokens.weight"], model.model.embed_tokens.weight)


def test_converted_once_and_again_when_the_file_changes(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write_gguf(path, tiny_gguf.tiny_llama())
    first = weights.load(path)
    stamp = (first.folder / "config.json").stat().st_mtime_ns
    assert weights.load(path).folder == first.folder
    assert (first.folder / "config.json").stat().st_mtime_ns == stamp
    os.utime(path, (1, 1))
    assert weights.load(path).folder != first.folder


def test_shards_follow_the_model_and_keep_to_the_limit():
    config = CONFIGS["smollm2-135m"]
    shards = plan_shards(config, 128 * 2**20)
    names = [name for shard in shards for name in shard]
    from math import prod

    from minicache.model_config import tensor_shapes

    shapes = tensor_shapes(config)
    sizes = [sum(4 * prod(shapes[name]) for name in shard) for shard in shards]
    assert names == list(shapes) and max(sizes) <= 128 * 2**20 and len(shards) == 5
    assert [len(shard) for shard in plan_shards(config, 1)] == [1] * 272


def spoiled(**metadata):
    return lambda fields, tensors: fields.update(metadata)


def without(key):
    return lambda fields, tensors: fields.pop(key)


REFUSED = {
    "architecture 'qwen2'": spoiled(**{"general.architecture": "qwen2"}),
    "llama.rope.scaling.type 'yarn'": spoiled(**{"llama.rope.scaling.type": ("string", "yarn")}),
    "llama.rope.dimension_count 8": spoiled(**{"llama.rope.dimension_count": ("uint32", 8)}),
    "llama.expert_count 8": spoiled(**{"llama.expert_count": ("uint32", 8)}),
    "no llama.block_count": without("llama.block_count"),
    "llama.embedding_length '64'": spoiled(**{"llama.embedding_length": ("string", "64")}),
    "llama.attention.head_count 0": spoiled(**{"llama.attention.head_count": ("uint32", 0)}),
    "tokenizer.ggml.model 'llama'": spoiled(**{"tokenizer.ggml.model": ("string", "llama")}),
    "tokenizer.ggml.pre 'qwen2'": spoiled(**{"tokenizer.ggml.pre": ("string", "qwen2")}),
    "tokenizer.ggml.add_bos_token True": spoiled(
        **{"tokenizer.ggml.add_bos_token": ("bool", True)}
    ),
    "eos token 99999": spoiled(**{"tokenizer.ggml.eos_token_id": ("uint32", 99_999)}),
    "no tokenizer.ggml.merges": without("tokenizer.ggml.merges"),
    "merges that do not fit": spoiled(**{"tokenizer.ggml.merges": ("array", ["zz yy"])}),
    "3 token types": spoiled(**{"tokenizer.ggml.token_type": ("array", [1, 1, 1])}),
    "unexpected tensor blk.1.": spoiled(**{"llama.block_count": ("uint32", 1)}),
    "lacks the tensor model.layers.2.": spoiled(**{"llama.block_count": ("uint32", 3)}),
    "blk.0.ffn_gate.weight of shape (96, 64)": spoiled(
        **{"llama.feed_forward_length": ("uint32", 95)}
    ),
    "a tensor blk.0.attn_q.bias": lambda fields, tensors: tensors.update(
        {"blk.0.attn_q.bias": np.ones(64, np.float32)}
    ),
    "rope_freqs.weight": lambda fields, tensors: tensors.update(
        {"rope_freqs.weight": np.ones(8, np.float32)}
    ),
}


@pytest.mark.parametrize("named", REFUSED)
def test_unsupported_or_wrong_files_are_refused_by_name(named, tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write_gguf(path, tiny_gguf.tiny_llama(), change=REFUSED[named])
    assert named in refusal(path)
    assert list((tmp_path / "cache").rglob("*.json")) == []


def test_unknown_quantization(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write_gguf(path, tiny_gguf.tiny_llama(), "Q5_0")
    assert "as Q5_0, but only F32, F16, Q8_0, Q4_1 are read" in refusal(path)


def test_not_a_gguf_file(tmp_path):
    for content in (b"", b"GG", b"PK\x03\x04" + bytes(100)):
        (tmp_path / "x.gguf").write_bytes(content)
        assert "is not a GGUF file" in refusal(tmp_path / "x.gguf")


def test_counts_that_lead_far_past_the_end_end_at_once(tiny_file, tmp_path):
    """The package's reader would loop 2⁴⁰ times over empty arrays."""
    content = bytearray(tiny_file.read_bytes())
    key = b"tokenizer.ggml.token_type"
    count_at = content.index(key) + len(key) + 8  # after the value's and the entries' type
    content[count_at : count_at + 8] = struct.pack("<Q", 2**40)
    (tmp_path / "x.gguf").write_bytes(content)
    assert "cut short or damaged" in refusal(tmp_path / "x.gguf")


def convert_damaged(content, folder):
    """Whatever the bytes, either a folder comes out or one sentence."""
    (folder / "damaged.gguf").write_bytes(content)
    (folder / "out").mkdir(exist_ok=True)
    try:
        convert_gguf(folder / "damaged.gguf", folder / "out", "damaged", lambda *_: None)
    except ModelError as error:
        assert "damaged.gguf" in str(error) and "\n" not in str(error)
        return str(error)
    return None


FUZZ = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(data=st.data())
def test_truncated_anywhere(data, tiny_file, tmp_path):
    content = tiny_file.read_bytes()
    keep = data.draw(st.integers(0, len(content) - 1))
    assert convert_damaged(content[:keep], tmp_path) is not None


@FUZZ
@given(data=st.data())
def test_damaged_anywhere_in_the_head(data, tiny_file, tmp_path):
    content = bytearray(tiny_file.read_bytes())
    end = content.index(b"token_embd.weight") + 1000
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, end))] = data.draw(st.integers(0, 255))
    convert_damaged(bytes(content), tmp_path)


GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class PlainTokenizer:
    """SmolLM's tokenizer from first principles: special tokens, digits, words, bytes, merges."""

    def __init__(self, content):
        self.vocabulary = content["model"]["vocab"]
        merges = content["model"]["merges"]
        self.ranks = {tuple(merge): rank for rank, merge in enumerate(merges)}
        self.special = [token["content"] for token in content["added_tokens"]]
        self.bytes = dict(zip(byte_order(), map(chr, printable_order()), strict=True))

    def encode(self, text):
        parts = regex.split("(" + "|".join(map(regex.escape, self.special)) + ")", text)
        return [token for part in parts for token in self.encode_part(part)]

    def encode_part(self, part):
        if part in self.special:
            return [self.vocabulary[part]]
        runs = regex.findall(r"\p{N}|\P{N}+", part)
        words = [word for run in runs for word in regex.findall(GPT2_WORDS, run)]
        return [self.vocabulary[piece] for word in words for piece in self.merge(word)]

    def merge(self, word):
        pieces = [self.bytes[byte] for byte in word.encode()]
        while True:
            pairs = list(zip(pieces, pieces[1:], strict=False))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, 1e9), default=None)
            if best not in self.ranks:
                return pieces
            at = pairs.index(best)
            pieces[at : at + 2] = ["".join(best)]


def byte_order():
    """GPT-2's order: printable bytes stand for themselves, the others follow from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return printable + [byte for byte in range(256) if byte not in printable]


def printable_order():
    return [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]


TEXTS = [
    "",
    "Hello  world 12345 3.14, it's 2026-01-31!",
    "émoji 😀👩‍👩‍👧 🇫🇷 漢字かな 한국어 العربية עברית ไทย",
    "digits ١٢٣ ½ Ⅳ ² ৩ 五",
    "\n\n\t def f(x):\r\n    return x**2  # 42\n\n\n",
    "<|im_start|>user\nhi<|im_end|> <|im_start|><|endoftext|>",
    "<|im_start |> <|im_end <|endoftext|",
    "don't I'll we've they're I'M 'tis",
    "   lead and trail   ",
    "\x00\x01\x7f\xa0\u2028\u200b\ufeff\U0010ffff",
    "the then in on re and a 1212 112",
    "https://example.org/a?b=c&d=%20#e_f-g",
    "e\u0301 combining, ﬁ ligature, ǅ titlecase, 𝔘𝔫𝔦",
]
KNOWN_CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cn"])


def both_tokenizers(folder):
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return Tokenizer.from_file(str(folder / "tokenizer.json")), PlainTokenizer(content)


@pytest.fixture(scope="module")
def tiny_folder(tiny_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    convert_gguf(tiny_file, folder, "tiny", lambda *_: None)
    return folder


@pytest.mark.parametrize("text", TEXTS)
def test_tiny_tokenizer_is_the_plain_one(text, tiny_folder):
    fast, plain = both_tokenizers(tiny_folder)
    assert fast.encode(text).ids == plain.encode(text)
    assert fast.decode(fast.encode(text).ids, skip_special_tokens=False) == text


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(KNOWN_CHARACTERS | st.sampled_from("the in12 \n'"), max_size=40))
def test_any_text_is_tokenized_as_the_plain_one_does(text, tiny_folder):
    fast, plain = both_tokenizers(tiny_folder)
    assert fast.encode(text).ids == plain.encode(text)
    assert fast.decode(fast.encode(text).ids, skip_special_tokens=False) == text


def test_transformers_reads_the_tokenizer(tiny_folder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (1, 2, 0)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "in on"}], tokenize=False)
    assert text == "<|im_start|>in on<|im_end|>"
    fast, _ = both_tokenizers(tiny_folder)
    assert tokenizer(text)["input_ids"] == fast.encode(text).ids
    assert fast.encode("12").ids == [fast.token_to_id("1"), fast.token_to_id("2")]


def real_gguf():
    return models.cache_folder() / "downloads" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_real_tokenizer_is_the_plain_one(text, real_tokenizers):
    fast, plain = real_tokenizers
    assert fast.encode(text).ids == plain.encode(text)
    assert fast.decode(fast.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.model
def test_real_tokenizer_on_real_text(real_tokenizers):
    fast, plain = real_tokenizers
    text = Path(__file__).read_text(encoding="utf-8")
    assert fast.encode(text).ids == plain.encode(text)
    assert fast.decode(fast.encode(text).ids, skip_special_tokens=False) == text


@pytest.fixture(scope="module")
def real_tokenizers():
    return both_tokenizers(models.path("smollm2-135m"))


@pytest.mark.model
def test_real_weights_are_those_of_the_file_and_do_not_fit_16_bits():
    """Dequantized by the gguf package, rows of q and k put back by hand."""
    assert hashlib.sha256(real_gguf().read_bytes()).hexdigest() == SMOLLM2_WHEEL.member_sha256
    tensors = weights.load("smollm2-135m").tensors
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(real_gguf()).tensors}
    assert len(stored) == len(tensors) == 272
    sample: list[torch.Tensor] = []
    for name, value in tensors.items():
        tensor = stored[tiny_gguf.gguf_name(name)]
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        heads = {"q_proj": 9, "k_proj": 3}.get(name.split(".")[-2])
        array = tiny_gguf.permute(value.numpy(), heads) if heads else value.numpy()
        assert np.array_equal(array, expected), name
        sample.append(value.flatten()[::16])
    sampled = torch.cat(sample)
    for dtype, least in ((torch.bfloat16, 0.75), (torch.float16, 0.4)):
        changed = (sampled.to(dtype).float() != sampled).float().mean().item()
        print(f"{dtype} would change {changed:.1%} of the weights")
        assert changed > least


@pytest.mark.model
def test_real_model_answers_in_english_through_transformers():
    folder = models.path("smollm2-135m")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, return_tensors="pt")
    tokens = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    answer = tokenizer.decode(tokens[0, prompt["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"


@pytest.mark.model
@pytest.mark.slow
def test_real_model_against_the_gguf_loader_of_transformers():
    """Every tensor, bit for bit; every text but those with digits that only \\p{N} knows.

    transformers leaves SmolLM's splitting of digits out; its vocabulary merges no ASCII digits, so
    they come out alike, but '½' and '١' do not.
    """
    folder = models.path("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(folder)
    loaded = load_gguf_checkpoint(str(real_gguf()), return_tensors=True, model_to_load=model)
    ours = weights.load(folder).tensors
    assert ours.keys() == loaded["tensors"].keys()
    for name, value in loaded["tensors"].items():
        assert torch.equal(ours[name], value), name
    theirs = AutoTokenizer.from_pretrained(real_gguf().parent, gguf_file=real_gguf().name)
    fast, _ = both_tokenizers(folder)
    plain_digits = [text for text in TEXTS if not any(odd_digit(character) for character in text)]
    assert len(plain_digits) > 10
    for text in plain_digits:
        assert fast.encode(text).ids == theirs(text)["input_ids"]


def odd_digit(character):
    return category(character).startswith("N") and not character.isascii()


def test_byte_level_alphabet_is_gpt2s():
    assert sorted(ByteLevel.alphabet()) == sorted(map(chr, printable_order()))
