"""Who talks to the model, what they say, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minicache.request import SamplingParams

CHATS = (
    ("Ada", "Tell me a long story about a lighthouse keeper who makes friends with a whale."),
    ("Ben", "Explain step by step how to bake a loaf of bread, and why every step matters."),
    ("Cleo", "I have one week in Japan. Describe in detail what I should see on each day."),
)
READER = "Dana"
QUESTION = "Explain in a few sentences what this document is about."
CHAT_TOKENS = 144
ANSWER_TOKENS = 48

_STAGGER = 6
"""Tokens that a chat has had when the next one arrives."""
_LEAD = 36
"""Tokens that the last chat has had when the document arrives: everybody is talking by then."""


@dataclass(frozen=True, slots=True)
class Part:
    """One person's request. `arrival` is in seconds after the start of a run."""

    name: str
    prompt: Sequence[int]
    params: SamplingParams
    is_long: bool = False
    arrival: float = 0.0


def chat_params(seed: int) -> SamplingParams:
    """A little temperature keeps a small model from repeating itself; the seed keeps runs alike."""
    return SamplingParams(max_tokens=CHAT_TOKENS, temperature=0.6, top_p=0.9, seed=seed)


def answer_params() -> SamplingParams:
    """The answer to the document: short, since what is measured is the wait for its first word."""
    return SamplingParams(max_tokens=ANSWER_TOKENS)


def arrange(parts: Sequence[Part], time_per_token: float) -> list[Part]:
    """Plan the arrivals, so that the chats are talking when the document comes, on any machine.

    `time_per_token` is how long a decode step of all chats takes here, in seconds. Both runs get
    the arrivals of one call.
    """
    chats = [part for part in parts if not part.is_long]
    last = max(0, len(chats) - 1) * _STAGGER * time_per_token
    placed = [replace(part, arrival=i * _STAGGER * time_per_token) for i, part in enumerate(chats)]
    late = [part for part in parts if part.is_long]
    return placed + [replace(part, arrival=last + _LEAD * time_per_token) for part in late]
