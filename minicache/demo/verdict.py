"""What the two runs show, in sentences, also when the cure did not help."""

from __future__ import annotations

from minicache.demo.frame import seconds as _s
from minicache.demo.numbers import Comparison, Numbers

_CLEAR, _SLIGHT = 2.0, 1.1
"""Factors from which a difference counts as clear, and as more than noise."""


def verdict(comparison: Comparison) -> str:
    """What became of the chats' silence, and what that cost whom."""
    before, after = comparison.before, comparison.after
    if before is None or before.worst_gap_s is None or before.ttft_long_s is None:
        return "The first run was stopped before the document was read: there is nothing to tell."
    if not before.chats_during_long:
        return (
            "The chats had ended before the document came, so nobody could be kept waiting: "
            "this run says nothing about chunks."
        )
    whole = f"Read in one step, the document kept the chats silent for {_s(before.worst_gap_s)}"
    if after is None or after.worst_gap_s is None or after.ttft_long_s is None:
        return f"{whole}. The second run was stopped too early to compare."
    said = [_silence(whole, before.worst_gap_s, after.worst_gap_s)]
    said += [_price(before.ttft_long_s, after.ttft_long_s), _queue(before, after)]
    return " ".join(filter(None, said))


def _silence(whole: str, before: float, after: float) -> str:
    factor = before / after
    if factor >= _CLEAR:
        return f"{whole}; in the second run at most {_s(after)}, {factor:.1f} times shorter."
    if factor >= _SLIGHT:
        return f"{whole}; the second run helped only a little: {_s(after)}."
    return f"{whole}; the second run did not help: {_s(after)}."


def _price(before: float, after: float) -> str:
    change = after / before - 1
    first = f"first word came after {_s(after)} instead of {_s(before)}"
    if change > 0:
        return f"The price: the document's own {first}, {change:.0%} later."
    return f"It cost the document nothing: its {first}."


def _queue(before: Numbers, after: Numbers) -> str:
    """The other price: chats that had to wait for their first word, as with static batches."""
    if before.ttft_short_s is None or after.ttft_short_s is None:
        return ""
    if after.ttft_short_s < _CLEAR * before.ttft_short_s:
        return ""
    return (
        f"And the chats themselves waited {_s(after.ttft_short_s)} for a first word, "
        f"not {_s(before.ttft_short_s)}."
    )
