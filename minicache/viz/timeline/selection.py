"""One step, picked out: who was in it, with which positions and which pages of its table."""

from __future__ import annotations

import numpy as np

from minicache.viz.format import count, duration
from minicache.viz.timeline.model import Selection
from minicache.viz.timeline.run import Run

MAX_LINES = 12


def selection(run: Run, step: int) -> Selection:
    """What the step with this number did. Raises `KeyError` when the run has no such step."""
    at = np.flatnonzero(run.trace.steps.column("step") == step)
    if not at.size:
        raise KeyError(f"The run has no step {step}; its steps are {_steps(run)}.")
    record = run.trace.steps[int(at[0])]
    start, stop = record.t_start - run.zero, record.t_end - run.zero
    tokens = record.num_decodes + record.prefill_tokens
    title = (
        f"Step {step} at {duration(start)}: {duration(stop - start)} long, "
        f"{count(tokens)} of {count(record.budget)} tokens, "
        f"{count(record.pages_held)} of {count(record.pages_total)} pages held"
    )
    return Selection(start, stop, title, _lines(run, step))


def _steps(run: Run) -> str:
    numbers = run.trace.steps.column("step")
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) else "none"


def _lines(run: Run, step: int) -> tuple[str, ...]:
    """Chunks first, since they are few and large."""
    mine = np.flatnonzero(run.items.step == step)
    order = sorted(mine.tolist(), key=lambda i: not run.items.is_chunk[i])
    lines = [_line(run, i) for i in order]
    if len(lines) <= MAX_LINES:
        return tuple(lines)
    return (*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1} more")


def _line(run: Run, item: int) -> str:
    items = run.items
    first, last = int(items.first[item]), int(items.last[item])
    kind = "prefill" if items.is_chunk[item] else "decode"
    size = run.trace.page_size
    low, high = first // size, (last - 1) // size
    pages = f"page {count(low)}" if low == high else f"pages {count(low)} to {count(high)}"
    id = run.requests[int(items.request[item])].id
    return f"{id}: {kind} [{count(first)}, {count(last)}), {pages} of its table"
