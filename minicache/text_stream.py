"""Text as it comes: deltas that never have to be taken back, cut at stop strings.

A stop string may be spread over several tokens, so text that could be the beginning of one is held
back until it is clear. How much that is, a matcher knows at every character: the longest suffix of
the text that is a prefix of the stop string is the very state of the algorithm of Knuth, Morris and
Pratt (1977), "Fast pattern matching in strings", at constant amortised cost a character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minicache.tokenizer import Tokenizer


class StopMatcher:
    """Follows a text character by character and knows how much of one stop string it ends with."""

    __slots__ = ("_borders", "matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        """Length of the longest suffix of the text that is a prefix of `stop`."""
        self._borders = borders(stop)

    def advance(self, char: str) -> bool:
        """Take the next character; whether the text now ends with the whole stop string."""
        matched = self.matched
        while matched and (matched == len(self.stop) or self.stop[matched] != char):
            matched = self._borders[matched - 1]
        if self.stop[matched] == char:
            matched += 1
        self.matched = matched
        return matched == len(self.stop)


def borders(pattern: str) -> list[int]:
    """For every prefix of `pattern`: the length of its longest proper prefix that ends it too."""
    lengths = [0] * len(pattern)
    length = 0
    for i in range(1, len(pattern)):
        while length and pattern[i] != pattern[length]:
            length = lengths[length - 1]
        if pattern[i] == pattern[length]:
            length += 1
        lengths[i] = length
    return lengths


class TextStream:
    """The text of one request's output tokens, in deltas.

    Joined, the deltas are `tokenizer.decode(output tokens)` up to, and without, the first stop
    string. First is the one that is complete first when the text is read character by character (of
    two that end together, the longer), so the cut does not depend on how text falls into tokens.

    Only output tokens are pushed. A prompt that ends inside a character leaves its second half to
    the output, where it is U+FFFD: so nothing of the prompt can leak into a delta.
    """

    __slots__ = ("_decoder", "_held", "_matchers", "stopped")

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = ()) -> None:
        """`stop`: strings, none of them empty, that end the text."""
        self._decoder = tokenizer.start_text()
        self._matchers = [StopMatcher(text) for text in stop]
        self._held = ""
        self.stopped = False
        """Whether a stop string was found. Tokens pushed after that are ignored."""

    def push(self, token: int) -> str:
        """The text that is certain now; '' while a character or a stop string may be under way."""
        return "" if self.stopped else self._release(self._decoder.push(token))

    def finish(self) -> str:
        """The rest, when no more tokens come: text held back for a stop string that never was, and
        U+FFFD when the last token ends inside a character. A second call gives ''.
        """
        if self.stopped:
            return ""
        text = self._release(self._decoder.flush()) + self._held
        self._held = ""
        return text

    def _release(self, new: str) -> str:
        """Add `new` to what is held, and let go all that no stop string can reach any more."""
        if not self._matchers:
            return new
        text = self._held + new
        for end, char in enumerate(new, start=len(self._held) + 1):
            complete = [len(m.stop) for m in self._matchers if m.advance(char)]
            if complete:
                self.stopped = True
                self._held = ""
                return text[: end - max(complete)]
        clear = len(text) - max(matcher.matched for matcher in self._matchers)
        self._held = text[clear:]
        return text[:clear]
