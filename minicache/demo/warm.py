"""A short run before the one that counts: the machine wakes up, and says how fast it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from minicache.demo.people import Part
from minicache.engine import Engine

_TOKENS = 12


def warm_up(engine: Engine, parts: Sequence[Part]) -> float:
    """Serve a dozen tokens to every chat, forget it, and return the seconds of a decode step."""
    chats = [part for part in parts if not part.is_long]
    for part in chats:
        params = replace(part.params, max_tokens=_TOKENS, ignore_eos=True)
        engine.submit(part.prompt, params, id=part.name)
    while engine.has_work:
        engine.step()
    steps = [step for step in engine.trace.steps if step.num_decodes and not step.prefill_tokens]
    times = [step.t_end - step.t_start for step in steps]
    engine.reset_trace()
    return statistics.median(times)
