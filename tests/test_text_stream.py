"""Streaming text: right characters, nothing taken back, nothing leaked, cut at stop strings."""

import re
from itertools import accumulate

import pytest
import tiny_tokenizers as tiny
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders
from tokenizers.models import WordLevel

from minicache import models
from minicache.detokenizer import Detokenizer, byte_alphabet, read_spelling
from minicache.text_stream import StopMatcher, TextStream, borders
from minicache.tokenizer import Tokenizer

BYTE_LEVEL = Tokenizer(tiny.byte_level())
quick = settings(derandomize=True, max_examples=150, deadline=None)


def ids_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Random outputs, with ids that are special or that the vocabulary lacks."""
    return st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=30)


def stream(tokenizer: Tokenizer, tokens: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    """The deltas of `tokens`, the last of them from `finish`."""
    text = TextStream(tokenizer, stop)
    return [*(text.push(token) for token in tokens), text.finish()]


def one_token_each(data: bytes) -> list[int]:
    """Byte-level tokens of a single byte each: the least merged way to write `data`."""
    letters = {byte: char for char, byte in byte_alphabet().items()}
    backend = tiny.byte_level()
    return [backend.token_to_id(letters[byte]) for byte in data]


def cut_by_hand(text: str, stop: tuple[str, ...]) -> tuple[str, bool]:
    """Read `text` by characters until it ends with a stop string; drop the longest such."""
    for end in range(1, len(text) + 1):
        hits = [len(s) for s in stop if text[:end].endswith(s)]
        if hits:
            return text[: end - max(hits)], True
    return text, False


# Against the library that made the vocabulary


@given(tokens=ids_of(BYTE_LEVEL))
@quick
def test_byte_level_deltas_join_to_the_offline_text_wherever_they_are_cut(tokens):
    backend = tiny.byte_level()
    for end in range(len(tokens) + 1):
        want = backend.decode(tokens[:end], skip_special_tokens=True)
        assert "".join(stream(BYTE_LEVEL, tokens[:end])) == want
        assert BYTE_LEVEL.decode(tokens[:end]) == want


@given(data=st.binary(max_size=40))
@example(data=b"\xf0\x9f\x91")
@example(data=b"\xe2\x82\xe2\x82\xac")
@example(data=b"\xed\xa0\x80 \xc0\x80 \xf4\x90\x80\x80")  # surrogate, overlong, beyond U+10FFFF
@quick
def test_any_bytes_stream_as_python_and_rust_decode_them(data):
    tokens = one_token_each(data)
    want = data.decode("utf-8", "replace")
    assert "".join(stream(BYTE_LEVEL, tokens)) == want
    assert tiny.byte_level().decode(tokens) == want


@given(text=st.text(max_size=40))
@quick
def test_text_survives_encoding_and_streaming(text):
    tokens = BYTE_LEVEL.encode(text)
    deltas = stream(BYTE_LEVEL, tokens)
    assert "".join(deltas) == BYTE_LEVEL.decode(tokens)
    if not any(mark in text for mark in tiny.SPECIAL + tiny.PLAIN_ADDED):
        assert "".join(deltas) == text


OTHERS = {
    "metaspace": tiny.metaspace,
    "metaspace, first word only": lambda: tiny.metaspace("first"),
    "metaspace, never in front": lambda: tiny.metaspace("never"),
    "words without a decoder": tiny.words,
}


@pytest.mark.parametrize("name", OTHERS)
@given(data=st.data())
@quick
def test_other_vocabularies_join_to_the_offline_text(name, data):
    tokenizer, backend = Tokenizer(OTHERS[name]()), OTHERS[name]()
    tokens = data.draw(ids_of(tokenizer))
    want = backend.decode(tokens, skip_special_tokens=True)
    assert "".join(stream(tokenizer, tokens)) == want
    assert tokenizer.decode(tokens) == want


def fallback_bytes(backend: Backend, tokens: list[int]) -> list[bytes]:
    """What each token of a byte-fallback vocabulary writes, by the rules, one token at a time."""
    special = backend.get_added_tokens_decoder()
    words = [backend.id_to_token(token) for token in tokens if token not in special]
    pairs = [(word, re.fullmatch("<0x([0-9A-F]{2})>", word)) for word in words if word is not None]
    return [
        bytes([int(match[1], 16)]) if match else word.replace("▁", " ").encode()
        for word, match in pairs
    ]


@pytest.mark.parametrize("strip", [True, False])
@given(data=st.data())
@quick
def test_byte_fallback_keeps_good_characters_and_else_equals_the_library(strip, data):
    tokenizer, backend = Tokenizer(tiny.sentencepiece(strip)), tiny.sentencepiece(strip)
    if data.draw(st.booleans()):
        tokens = data.draw(ids_of(tokenizer))
    else:
        tokens = backend.encode(data.draw(st.text(max_size=20)), add_special_tokens=False).ids
    for end in range(len(tokens) + 1):
        written = b"".join(fallback_bytes(backend, tokens[:end]))
        want = written.decode("utf-8", "replace")
        want = want.removeprefix(" ") if strip else want
        assert "".join(stream(tokenizer, tokens[:end])) == want
        assert tokenizer.decode(tokens[:end]) == want
        if "\ufffd" not in want:
            assert backend.decode(tokens[:end], skip_special_tokens=True) == want


def test_the_one_case_where_the_library_decodes_otherwise():
    """It blanks a whole run of byte tokens; a stream has shown the good characters by then."""
    backend = tiny.sentencepiece()
    tokens = [backend.token_to_id(f"<0x{byte:02X}>") for byte in "猫".encode() + b"\xe7"]
    assert backend.decode(tokens) == "\ufffd" * 4
    assert stream(Tokenizer(tiny.sentencepiece()), tokens) == ["", "", "猫", "", "\ufffd"]


def test_every_byte_has_its_own_letter():
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert len(byte_alphabet()) == 256


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.WordPiece(),
        decoders.CTC(),
        decoders.BPEDecoder(),
        decoders.Strip(" ", 1, 0),  # before a fuse it would strip every token
        decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "c")]),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    ],
)
def test_a_decoder_that_cannot_be_streamed_is_refused_by_name(decoder):
    backend = tiny.words()
    backend.decoder = decoder
    with pytest.raises(ValueError, match="cannot be streamed") as caught:
        Tokenizer(backend)
    assert re.search("WordPiece|CTC|BPEDecoder|Strip|Replace|Metaspace", str(caught.value))


def test_a_byte_level_decoder_may_stand_in_a_sequence():
    one = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    nested = {"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": [one]}]}
    assert read_spelling(nested) == read_spelling(one)


# Characters


EMOJI = ["👍", "👩‍👩‍👧", "👍🏽", "🇫🇷"]
COMBINED = ["日本語", "e\u0301o\u0308", "ก็", "\u200d"]


@pytest.mark.parametrize("text", EMOJI + COMBINED)
def test_a_delta_never_holds_half_a_character(text):
    tokens = one_token_each(text.encode())
    assert len(tokens) > len(text)
    deltas = stream(BYTE_LEVEL, tokens)
    assert "".join(deltas) == text
    assert all(delta in ("", *text) for delta in deltas)


def test_an_emoji_of_four_tokens_comes_with_the_fourth():
    assert stream(BYTE_LEVEL, one_token_each("👍".encode())) == ["", "", "", "👍", ""]


def test_a_prompt_that_ends_inside_a_character_leaks_nothing():
    """The output begins with the second half: it is no text, and the prompt's half is not known."""
    whole = "secret 👍".encode()
    prompt, output = whole[:-2], whole[-2:] + b" ok"
    assert prompt.decode("utf-8", "replace").startswith("secret")
    deltas = stream(BYTE_LEVEL, one_token_each(output))
    assert deltas == ["\ufffd", "\ufffd", " ", "o", "k", ""]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_limit_inside_a_character_ends_in_one_replacement(count):
    tokens = one_token_each("ok 👍".encode())[: 3 + count]
    assert stream(BYTE_LEVEL, tokens) == ["o", "k", " ", *[""] * count, "\ufffd"]


@pytest.mark.parametrize("written", [b"", b"ST", b"ST\xf0\x9f"])
def test_finish_flushes_once(written):
    text = TextStream(BYTE_LEVEL, ("STOP", "T\ufffdY"))
    assert all(text.push(token) == "" for token in one_token_each(written))
    assert text.finish() == written.decode("utf-8", "replace")
    assert text.finish() == ""
    assert not text.stopped


def test_a_stream_without_tokens_is_empty():
    assert stream(BYTE_LEVEL, []) == [""]
    assert stream(BYTE_LEVEL, [], ("stop",)) == [""]


def test_special_tokens_and_unknown_ids_add_nothing_inside_a_character():
    a, b, c, d = one_token_each("👍".encode())
    end, unknown = BYTE_LEVEL.special_tokens["<|im_end|>"], BYTE_LEVEL.vocab_size + 100
    assert stream(BYTE_LEVEL, [end, a, b, end, c, unknown, d, end])[6] == "👍"


def test_the_mark_of_the_first_word_goes_only_from_the_first_word():
    tokenizer = Tokenizer(tiny.sentencepiece())
    backend = tiny.sentencepiece()
    tokens = [backend.token_to_id(word) for word in ("<s>", "▁the", "▁cat", "▁", "s")]
    assert stream(tokenizer, tokens) == ["", "the", " cat", " ", "s", ""]


# Stop strings


@pytest.mark.parametrize(
    ("pieces", "stop", "want"),
    [
        (["a", "bc"], ("abc",), ""),
        (["ab", "ab", "c"], ("abc",), "ab"),
        (["xxabcyy"], ("abc",), "xx"),
        (["x", "abcyy"], ("abc",), "x"),
        (["aab", "aabaab", "z"], ("aabaabz",), "aab"),
        (["stopp", "ed"], ("stopped",), ""),
        (["ab", "cd"], ("abcd", "bc"), "a"),  # 'bc' is complete first
        (["abcd"], ("abcd", "bc"), "a"),  # and in one token just the same
        (["xab", "c"], ("bc", "abc"), "x"),  # both end here: the longer
        (["ab"], ("abc", "abd"), "ab"),  # neither came
        (["日", "本語"], ("本",), "日"),
    ],
)
def test_stop_strings_across_tokens(pieces, stop, want):
    tokenizer, tokens = whole_words(pieces)
    text = TextStream(tokenizer, stop)
    deltas = [text.push(token) for token in tokens]
    assert "".join([*deltas, text.finish()]) == want
    assert text.stopped == (cut_by_hand("".join(pieces), stop)[1])


def whole_words(pieces: list[str]) -> tuple[Tokenizer, list[int]]:
    """A vocabulary whose words are just these `pieces`, and their ids."""
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    backend = Backend(WordLevel(vocab, pieces[0]))
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend), [vocab[piece] for piece in pieces]


def test_text_held_for_a_stop_string_comes_when_it_is_not_one():
    tokenizer, tokens = whole_words(["EN", "DL", "ESS"])
    text = TextStream(tokenizer, ("END.",))
    assert [text.push(token) for token in tokens] == ["", "ENDL", "ESS"]
    assert not text.stopped


def test_what_comes_after_a_stop_string_is_not_told():
    tokens = one_token_each(b"ok STOP secret")
    text = TextStream(BYTE_LEVEL, ("STOP",))
    deltas = [text.push(token) for token in tokens]
    assert "".join(deltas) == "ok " and text.stopped
    assert text.finish() == "" and text.push(tokens[0]) == ""


def test_a_replacement_at_the_end_can_complete_a_stop_string():
    text = TextStream(BYTE_LEVEL, ("x\ufffd",))
    deltas = [text.push(token) for token in one_token_each(b"ax\xf0\x9f")]
    assert ("".join(deltas), text.finish(), text.stopped) == ("a", "", True)


STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), min_size=1, max_size=4).map(tuple)
SHORT_STOPS = st.lists(st.text(min_size=1, max_size=3), max_size=3).map(tuple)
SIZES = st.lists(st.integers(1, 6), min_size=1)


@given(text=st.text("ab\nc", min_size=1, max_size=40), stop=STOPS, sizes=SIZES)
@settings(derandomize=True, max_examples=500, deadline=None)
def test_the_cut_does_not_depend_on_the_tokens(text, stop, sizes):
    """Any cutting of the text into pieces, against reading it character by character."""
    edges = [0, *accumulate(sizes)]
    edges = [edge for edge in edges if edge < len(text)] + [len(text)]
    pieces = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    tokenizer, tokens = whole_words(pieces)
    source = TextStream(tokenizer, stop)
    sent, seen = "", ""
    for token, piece in zip(tokens, pieces, strict=True):
        sent += source.push(token)
        seen += piece
        want, stopped = cut_by_hand(seen, stop)
        assert source.stopped == stopped
        if stopped:
            assert sent == want
        else:
            assert seen == sent + longest_beginning(seen, stop)
    assert sent + source.finish() == cut_by_hand(text, stop)[0]


def longest_beginning(text: str, stop: tuple[str, ...]) -> str:
    """The longest suffix of `text` that could become a stop string: all that may be held back."""
    sizes = range(min(len(text), max(map(len, stop))), 0, -1)
    suffixes = (text[len(text) - size :] for size in sizes)
    return next((end for end in suffixes if any(s.startswith(end) for s in stop)), "")


@given(tokens=ids_of(BYTE_LEVEL), stop=SHORT_STOPS)
@quick
def test_random_tokens_with_stop_strings_equal_the_offline_cut(tokens, stop):
    want, stopped = cut_by_hand(tiny.byte_level().decode(tokens, skip_special_tokens=True), stop)
    text = TextStream(BYTE_LEVEL, stop)
    joined = "".join([*(text.push(token) for token in tokens), text.finish()])
    assert (joined, text.stopped) == (want, stopped)


@given(st.text("ab", max_size=12))
@quick
def test_borders_are_the_longest_that_begin_and_end_a_prefix(pattern):
    for end, length in enumerate(borders(pattern), start=1):
        prefix = pattern[:end]
        assert length == max(k for k in range(end) if prefix.startswith(prefix[end - k :]))


def test_the_matcher_goes_on_after_a_match():
    matcher = StopMatcher("aa")
    assert [matcher.advance(char) for char in "aaaba"] == [False, True, True, False, False]


# Cost


class CountingBackend:
    """Passes on what a detokenizer may ask, and counts it. It has no `decode`."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self.decoder, self.asked = backend, backend.decoder, 0

    def get_added_tokens_decoder(self):
        return self._backend.get_added_tokens_decoder()

    def id_to_token(self, token):
        self.asked += 1
        return self._backend.id_to_token(token)


def test_a_token_is_spelled_once_and_the_output_never_again():
    backend = CountingBackend(tiny.byte_level())
    detokenizer = Detokenizer(backend)
    tokens = BYTE_LEVEL.encode("the cat sat on the mat. " * 500)
    assert detokenizer.text(tokens) == "the cat sat on the mat. " * 500
    assert backend.asked <= len(set(tokens)) + 1


def test_what_is_held_stays_shorter_than_the_stop_string():
    """Also for the text that keeps a naive search busiest: repetitions that almost match."""
    text = TextStream(BYTE_LEVEL, ("a" * 50 + "b",))
    (a,) = one_token_each(b"a")
    sent = sum(len(text.push(a)) for _ in range(5000))
    assert 5000 - sent == 50


# The real model's vocabulary


@pytest.fixture(scope="module")
def smollm() -> tuple[Tokenizer, Backend]:
    """The engine's tokenizer, and the library's own."""
    folder = models.local_folder("smollm2-135m")
    if folder is None:
        pytest.skip("smollm2-135m is not here; run 'minicache models pull smollm2-135m'.")
    return Tokenizer.from_folder(folder), Backend.from_file(str(folder / "tokenizer.json"))


@pytest.mark.model
@given(data=st.data())
@settings(derandomize=True, max_examples=30, deadline=None)
def test_the_real_vocabulary_streams_as_the_library_decodes(smollm, data):
    tokenizer, backend = smollm
    if data.draw(st.booleans()):
        tokens = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    else:
        tokens = tokenizer.encode(data.draw(st.text(max_size=40)))
    for end in (len(tokens) // 2, len(tokens)):
        want = backend.decode(tokens[:end], skip_special_tokens=True)
        assert "".join(stream(tokenizer, tokens[:end])) == want


@pytest.mark.model
def test_the_real_vocabulary_streams_a_family_of_emoji(smollm):
    tokenizer, _ = smollm
    text = "A family: 👩‍👩‍👧, 日本語, e\u0301."
    tokens = tokenizer.encode(text)
    deltas = stream(tokenizer, tokens)
    assert "".join(deltas) == text
    assert "\ufffd" not in "".join(deltas)
    assert deltas.count("") > 5, "characters of several tokens"
