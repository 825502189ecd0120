"""Random numbers that depend on a request and a position, and on nothing else.

A generator that is advanced by every draw makes a request's text depend on who shared its batch.
Philox has no such state: it encrypts a counter under a key, so the number at any position can be
computed at once, in any order, twice after a preemption. Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

from numpy.random import Philox, SeedSequence

_PER_COUNTER = 4  # Philox4x64 encrypts one counter into four 64-bit words
_SPAN = (
    64  # positions computed at a time, because setting up a generator costs far more than a word
)


class Uniforms:
    """The numbers of one request: `uniforms(position)` lies in [0, 1) with 53 random bits.

    The value is that of word `position` of Philox4x64's stream under the key, so it is the same on
    every machine and with every version of numpy, which promises that stream.
    """

    __slots__ = ("_key", "_start", "_words")

    def __init__(self, *entropy: int) -> None:
        """`entropy`: any integers; different ones give unrelated streams. Taken modulo 2**64."""
        parts = [part % 2**64 for part in entropy]
        # Words of one width behind their number, or (1,) and (1, 0) would give the same key.
        words = [word for part in parts for word in (part & 0xFFFFFFFF, part >> 32)]
        low, high = SeedSequence([len(words), *words]).generate_state(2, "uint64").tolist()
        self._key = low | high << 64
        self._start = -_SPAN
        self._words: list[int] = []

    def __call__(self, position: int) -> float:
        """The number at `position` >= 0. Every 64 positions a new span is computed."""
        offset = position - self._start
        if not 0 <= offset < len(self._words):
            self._start = position - position % _SPAN
            counter = self._start // _PER_COUNTER
            self._words = Philox(key=self._key, counter=counter).random_raw(_SPAN).tolist()
            offset = position - self._start
        return (self._words[offset] >> 11) * 2.0**-53
