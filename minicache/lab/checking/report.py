"""The outcome of a check as a small table, in HTML and as plain text."""

from __future__ import annotations

from minicache.lab.checking.outcome import CaseResult, Fault, Outcome, Verdict
from minicache.lab.show import (
    BAD,
    GOOD,
    LINE,
    MUTED,
    STYLE,
    Shown,
    cell,
    escape,
    preformatted,
    table,
)


def report(outcome: Outcome) -> Shown:
    """Everything a check says, ready to show."""
    return Shown(_html(outcome), _text(outcome))


def headline(outcome: Outcome) -> str:
    """The result in one line."""
    total = len(outcome.cases)
    if outcome.verdict is Verdict.PASSED:
        return f"{outcome.name}: all {total} cases pass"
    if outcome.verdict is Verdict.FAILED:
        return f"{outcome.name}: {outcome.num_passed} of {total} cases pass"
    return f"{outcome.name}: {outcome.verdict.value}"


def failure_parts(case: CaseResult) -> list[tuple[str, str]]:
    """The first failing case, as (label, text) rows."""
    rows = [("about", case.about), *case.inputs, ("expected", case.expected), ("got", case.got)]
    rows += [("wrong", case.sentence), ("where", case.where)]
    return [(label, text) for label, text in rows if text]


def _extra_parts(outcome: Outcome) -> list[tuple[str, str]]:
    rows = [("why", outcome.sentence), ("where", outcome.where), ("it printed", outcome.printed)]
    return [(label, text) for label, text in rows if text]


def _mark(case: CaseResult) -> str:
    return {None: "✓", Fault.NOT_RUN: "·"}.get(case.fault, "✗")


def _text(outcome: Outcome) -> str:
    width = max((len(case.name) for case in outcome.cases), default=0)
    lines = [headline(outcome)]
    for case in outcome.cases:
        fault = case.fault.value if case.fault else ""
        lines.append(f"  {_mark(case)} {case.name.ljust(width)}  {fault}".rstrip())
    worst = outcome.smallest_failure
    if worst:
        lines += ["", f"The smallest failing case: {worst.name}", *_aligned(failure_parts(worst))]
    lines += _aligned(_extra_parts(outcome))
    return "\n".join([*lines, *outcome.notes])


def _aligned(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(label) for label, _ in rows), default=0)
    pad = "\n" + " " * (width + 4)
    return [f"  {label.ljust(width)}  {text.replace(chr(10), pad)}" for label, text in rows]


def _html(outcome: Outcome) -> str:
    colour = {Verdict.PASSED: GOOD, Verdict.NOT_WRITTEN: MUTED}.get(outcome.verdict, BAD)
    parts = [
        f'<div style="{STYLE} border-left: 4px solid {colour}; padding-left: 10px;">',
        f"<strong>{escape(headline(outcome))}</strong>",
    ]
    if outcome.cases:
        parts.append(table([_row(case) for case in outcome.cases], headline(outcome)))
    worst = outcome.smallest_failure
    if worst:
        parts.append(f"<div>The smallest failing case: <strong>{escape(worst.name)}</strong></div>")
        parts.append(_parts_table(failure_parts(worst), f"The failing case {worst.name}"))
    if _extra_parts(outcome):
        parts.append(_parts_table(_extra_parts(outcome), "What else is known"))
    parts += [f"<div>{escape(note)}</div>" for note in outcome.notes]
    return "".join([*parts, "</div>"])


def _row(case: CaseResult) -> str:
    colour = {None: GOOD, Fault.NOT_RUN: MUTED}.get(case.fault, BAD)
    mark = cell(_mark(case), f"color: {colour}; font-weight: bold;")
    return mark + cell(escape(case.name)) + cell(escape(case.fault.value if case.fault else ""))


def _parts_table(rows: list[tuple[str, str]], caption: str) -> str:
    style = f"border-top: {LINE}; vertical-align: top;"
    return table(
        [
            cell(escape(label), style + f"color: {MUTED};") + cell(preformatted(text), style)
            for label, text in rows
        ],
        caption,
    )
