"""The benchmark as a picture: time, share of the read-only rate, × floor, chunks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

DATA_SHEET = 4.8e12
"""Bytes a second of an H200's memory, for the floor."""
_OURS = "minicache"
_COLOURS = ("#C2410C", "#1D4ED8", "#0F766E", "#7C3AED", "#6B7280", "#B45309", "#BE185D")


def save(data_file: Path, picture: Path) -> None:
    """Draw `kernels.json` into `picture`; the suffix chooses the format."""
    plt: Any = import_module("matplotlib.pyplot")
    data: dict[str, Any] = json.loads(data_file.read_text())
    figure, axes = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
    cases = data["decode"]
    if cases:
        _contexts(axes[0][0], cases)
        _by_case(axes[0][1], cases, partial(_share, data["ceilings"]["read"]))
        axes[0][1].set_title("Share of the read-only rate, % (higher is better)")
        _by_case(axes[1][0], cases, _over_floor)
        axes[1][0].set_ylim(1, 2)
        axes[1][0].set_title("Time over the floor: KV bytes / 4.8 TB/s (lower is better)")
    if data["chunk"]:
        _chunks(axes[1][1], data["chunk"])
    about = data["about"]
    figure.suptitle("Paged attention kernels, bf16, head_dim 128, 8 KV heads, pages of 16 tokens")
    figure.text(
        0.99, 0.985, f"measured: {about['device']}, {about['date']}", ha="right", fontsize=9
    )
    figure.savefig(picture)
    plt.close(figure)


def _share(rate: float, case: Mapping[str, Any], us: float) -> float:
    """Percent of `rate` (bytes a second) that a call of `us` microseconds reached."""
    return case["kv_bytes"] / us * 1e8 / rate


def _over_floor(case: Mapping[str, Any], us: float) -> float:
    return us * DATA_SHEET / case["kv_bytes"] / 1e6


def _names(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for entry in entries for name in entry["us"]))
    return [name for name in names if not name.startswith(_OURS + ", ")]


def _style(number: int, name: str) -> dict[str, Any]:
    colour = _COLOURS[number % len(_COLOURS)]
    return {
        "color": colour,
        "lw": 2.5 if name == _OURS else 1.3,
        "marker": "o",
        "ms": 4,
        "label": name,
    }


def _contexts(axis: Any, cases: Sequence[Mapping[str, Any]]) -> None:
    """Microseconds of one sequence against its context."""
    alone = [case for case in cases if len(case["lengths"]) == 1 and case["heads"] == 32]
    for number, name in enumerate(_names(alone)):
        axis.plot(
            [case["lengths"][0] for case in alone],
            [case["us"].get(name, [None])[0] for case in alone],
            **_style(number, name),
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("context, tokens")
    axis.set_title("One sequence: µs a call (lower is better)")
    axis.legend(fontsize=8)


def _by_case(
    axis: Any,
    cases: Sequence[Mapping[str, Any]],
    value: Callable[[Mapping[str, Any], float], float],
) -> None:
    for number, name in enumerate(_names(cases)):
        heights = [value(c, c["us"][name][0]) if name in c["us"] else None for c in cases]
        axis.plot(range(len(cases)), heights, **_style(number, name))
    axis.set_xticks(range(len(cases)), [case["case"] for case in cases], rotation=25, fontsize=8)


def _chunks(axis: Any, chunks: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for chunk in chunks for name in chunk["us"]))
    for number, name in enumerate(names):
        rates = [c["flops"] / c["us"][name][0] / 1e6 if name in c["us"] else None for c in chunks]
        axis.plot(range(len(chunks)), rates, **_style(number, name))
    labels = [f"{c['tokens']} at {c['context'] // 1024}k" for c in chunks]
    axis.set_xticks(range(len(chunks)), labels, rotation=25, fontsize=8)
    axis.set_title("Chunks: TFLOP/s of visible pairs (higher is better)")
    axis.legend(fontsize=8)
