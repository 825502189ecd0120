"""Predictions: a number written down before it is measured, and shown beside the measured one.

No grading. A number that turns out wrong is the reason to read on. Numbers are kept in the
learner's library, in `predictions.json`, so that they survive a restart.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import EllipsisType
from typing import TypedDict

from minicache.lab import library
from minicache.lab.show import MUTED, STYLE, Shown, cell, escape, table


class Prediction(TypedDict):
    """One prediction as it is kept."""

    guess: float | None
    unit: str
    question: str


def predict(name: str, *, guess: float | EllipsisType, unit: str, question: str = "") -> Shown:
    """Write a number down. `guess=...` says that there is none yet; the lesson goes on anyway."""
    number = None if guess is ... else float(guess)
    kept = _read()
    kept[name] = Prediction(guess=number, unit=unit, question=question)
    _write(kept)
    if number is None:
        place = f"in place of the three dots, in {unit}" if unit else "in place of the three dots"
        text = f"{question} No number yet: write one {place}.".strip()
    else:
        text = f"{question} You say: {amount(number, unit)}.".strip()
    return Shown(f'<div style="{STYLE}">{escape(text)}</div>', text)


def reveal(name: str, *, measured: float, formula: float | None = None) -> Shown:
    """Show what was measured beside the learner's number and, where there is one, the formula's."""
    kept = _read().get(name)
    if kept is None:
        raise LookupError(f"Nothing was predicted under {name!r}: run the prediction's cell first.")
    unit, said = kept["unit"], kept["guess"]
    shown = [("you said", "nothing yet", "")] if said is None else []
    for label, value in (("you said", said), ("the formula says", formula)):
        if value is not None:
            shown.append((label, amount(value, unit), _against(value, measured)))
    shown.append(("measured", amount(measured, unit), ""))
    return Shown(_html(kept["question"], shown), _text(kept["question"], shown))


def amount(value: float, unit: str) -> str:
    """`1,234 ms`, `0.0123 s`: three significant digits and the unit."""
    rounded = float(f"{value:.3g}")
    text = f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.6g}"
    return f"{text} {unit}".rstrip()


def _against(value: float, measured: float) -> str:
    """How far a prediction is from the measurement, as a ratio either way."""
    if value <= 0 or measured <= 0:
        return ""
    ratio = max(value / measured, measured / value)
    if ratio < 1.05:
        return "within 5 %"
    factor = f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
    return f"measured: {factor} times {'less' if value > measured else 'as much'}"


def _text(question: str, rows: list[tuple[str, str, str]]) -> str:
    left = max(len(label) for label, _, _ in rows)
    right = max(len(value) for _, value, _ in rows)
    lines = [f"  {a.ljust(left)}  {b.rjust(right)}  {c}".rstrip() for a, b, c in rows]
    return "\n".join(([question] if question else []) + lines)


def _html(question: str, rows: list[tuple[str, str, str]]) -> str:
    body = [
        cell(escape(label), f"color: {MUTED};")
        + cell(f"<strong>{escape(value)}</strong>", "text-align: right;")
        + cell(escape(note), f"color: {MUTED};")
        for label, value, note in rows
    ]
    return f'<div style="{STYLE}">{escape(question)}{table(body, "Predicted and measured")}</div>'


def _path() -> Path:
    return library.folder() / "predictions.json"


def _read() -> dict[str, Prediction]:
    if not _path().exists():
        return {}
    kept: dict[str, Prediction] = json.loads(_path().read_text("utf-8"))
    return kept


def _write(kept: dict[str, Prediction]) -> None:
    _path().parent.mkdir(parents=True, exist_ok=True)
    draft = _path().with_suffix(".tmp")
    draft.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
    draft.replace(_path())
