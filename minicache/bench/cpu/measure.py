"""The measurements, as rows of one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from minicache.bench.cpu import floor
from minicache.bench.cpu.contest import Duel, alternate
from minicache.bench.cpu.fresh import MB, measure_fresh
from minicache.bench.cpu.ours import Ours
from minicache.bench.cpu.theirs import Theirs
from minicache.bench.cpu.workload import PROMPTS, SLOTS, mixed_queue, one_prompt
from minicache.model_config import ModelConfig

LONG = 2048
OUTPUTS = 64
PAGES = 272
"""Room for one long prompt and its answer, or for eight rows of the queue."""
BARS = {
    ("decode", "bfloat16"): 1.15,
    ("decode", "float32"): 1.0,
    ("queue", "bfloat16"): 1.6,
    ("prefill", "bfloat16"): 0.95,
    ("prefill", "float32"): 0.95,
}
READY_SECONDS = 2.0
OVERHEAD_BYTES = 700 * MB


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `value` is what is held against `bar`: at least it, or at most it."""

    what: str
    dtype: str
    value: float
    unit: str
    ours: float | None = None
    theirs: float | None = None
    floor: float | None = None
    """In the unit of `ours`."""
    bar: float | None = None
    at_most: bool = False
    repeats: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Seconds of every repeat."""

    @property
    def good(self) -> bool:
        """Whether the bar is met; rows without a bar are for reading."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.at_most else self.value >= self.bar


def contest_rows(folder: Path, dtype: str, repeats: int) -> Iterator[Row]:
    """Decode, prefill and the queue, against transformers, and against what the machine allows."""
    ours = Ours(folder, dtype, slots=SLOTS, budget=LONG, num_pages=PAGES)
    theirs = Theirs(folder, dtype, slots=SLOTS)
    config, precision = ours.llm.config, getattr(torch, dtype)
    machine = floor.measure_ceilings(precision)
    short = one_prompt(OUTPUTS, config.vocab_size)
    duel = alternate(
        lambda: ours.decode(short, OUTPUTS), lambda: theirs.decode(short, OUTPUTS), repeats
    )
    least = floor.decode_floor(config, precision, 2 * OUTPUTS, machine)
    yield _duel_row("one prompt, decode", duel, dtype, "ms/tok", 1e3, least, "decode")
    yield from _queue_rows(ours, theirs, config, dtype, repeats)
    prompt = one_prompt(LONG, config.vocab_size)
    duel = alternate(lambda: ours.prefill(prompt), lambda: theirs.prefill(prompt), repeats)
    least = floor.prefill_floor(config, LONG, machine)
    yield _duel_row(f"prefill of {LONG:,} tokens", duel, dtype, "s", 1.0, least, "prefill")


def invariant_rows(folder: Path, dtype: str, repeats: int) -> Iterator[Row]:
    """What `batch_invariant` costs: its time over that of the default, measured in turn."""
    fixed, free = (
        Ours(folder, dtype, slots=1, budget=512, num_pages=PAGES, batch_invariant=invariant)
        for invariant in (True, False)
    )
    prompt = one_prompt(512, free.llm.config.vocab_size)
    duel = alternate(lambda: fixed.prefill(prompt), lambda: free.prefill(prompt), repeats)
    yield _cost_row("batch_invariant: prefill of 512", duel, dtype, "s", 1.0)
    short = prompt[:OUTPUTS]
    duel = alternate(lambda: fixed.decode(short, 32), lambda: free.decode(short, 32), repeats)
    yield _cost_row("batch_invariant: decode", duel, dtype, "ms/tok", 1e3)


def fresh_rows(folder: Path, dtype: str, repeats: int) -> Iterator[Row]:
    """Ready time and memory of a process of its own."""
    runs = [measure_fresh(folder, dtype) for _ in range(repeats)]
    ready = [run.ready_seconds for run in runs]
    yield Row(
        "ready after import torch",
        dtype,
        min(ready),
        "s",
        ours=min(ready),
        bar=READY_SECONDS,
        at_most=True,
        repeats={"ours": ready},
    )
    overhead = max(run.overhead_bytes for run in runs)
    yield Row(
        "peak memory − weights − pool",
        dtype,
        overhead / MB,
        "MB",
        ours=max(run.peak_bytes for run in runs) / MB,
        bar=OVERHEAD_BYTES / MB,
        at_most=True,
    )


def _queue_rows(
    ours: Ours, theirs: Theirs, config: ModelConfig, dtype: str, repeats: int
) -> Iterator[Row]:
    """Wall time, and the two factors that make it: fewer steps, and faster ones."""
    queue = mixed_queue(config.vocab_size)
    steps = {"ours": 0, "theirs": 0}

    def run(name: str, contestant: Ours | Theirs) -> float:
        served = contestant.serve(queue.prompts, queue.counts)
        steps[name] = served.steps
        return served.seconds

    duel = alternate(lambda: run("ours", ours), lambda: run("theirs", theirs), repeats)
    fewer = steps["theirs"] / steps["ours"]
    yield _duel_row(f"{PROMPTS} prompts, {SLOTS} slots", duel, dtype, "s", 1.0, None, "queue")
    yield Row("  of this: fewer steps", dtype, fewer, "steps", steps["ours"], steps["theirs"])
    mine, other = (1e3 * best / n for best, n in zip(duel.best, steps.values(), strict=True))
    yield Row("  of this: faster steps", dtype, duel.ratio / fewer, "ms/step", mine, other)


def _duel_row(
    what: str, duel: Duel, dtype: str, unit: str, scale: float, least: float | None, bar: str
) -> Row:
    best = duel.best
    return Row(
        what,
        dtype,
        duel.ratio,
        unit,
        ours=best[0] * scale,
        theirs=best[1] * scale,
        floor=None if least is None else least * scale,
        bar=BARS.get((bar, dtype)),
        repeats={"ours": duel.ours, "theirs": duel.theirs},
    )


def _cost_row(what: str, duel: Duel, dtype: str, unit: str, scale: float) -> Row:
    """How many times the default's time the first of the two took."""
    repeats = {"invariant": duel.ours, "default": duel.theirs}
    return Row(what, dtype, 1 / duel.ratio, unit, ours=duel.best[0] * scale, repeats=repeats)
