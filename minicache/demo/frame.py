"""One picture of a run for a terminal: lanes with their text, the last step, pages, queue."""

from __future__ import annotations

import textwrap

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from minicache.demo.printable import one_line
from minicache.demo.stage import Lane, Mood, Stage
from minicache.trace import StepRecord

PREFILL, DECODE, PAGES = "#0072B2", "#E69F00", "#009E73"
"""The course's colours: prefill blue, decode orange, cache green."""
_FROZEN = 0.5
"""Seconds of silence from which a person starts to wonder."""
_INDENT = 6
_STYLES = {
    Mood.QUEUED: "bold",
    Mood.READING: f"bold {PREFILL}",
    Mood.TALKING: f"bold {DECODE}",
    Mood.DONE: "dim",
    Mood.AWAY: "dim",
    Mood.CANCELLED: "bold red",
    Mood.FAILED: "bold red",
}


def frame(stage: Stage, now: float, width: int, text_lines: int) -> RenderableType:
    """The run at `now`, `width` columns wide, with `text_lines` lines of text a lane."""
    inner = width - 4
    lanes = [_lane(lane, now, inner, text_lines) for lane in stage.lanes.values()]
    return Panel(
        Group(*lanes, _machine(stage, inner)),
        title=Text(stage.title, style="bold"),
        subtitle=Text(f"{now - stage.start:.1f} s"),
        title_align="left",
        subtitle_align="right",
        box=box.ROUNDED,
        width=width,
    )


def height(num_lanes: int, text_lines: int) -> int:
    """Lines that a frame takes."""
    return num_lanes * (1 + text_lines) + 5


def _lane(lane: Lane, now: float, width: int, text_lines: int) -> RenderableType:
    head = Table.grid(expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(_who(lane), _gap(lane, now))
    if lane.mood is Mood.READING:
        return Group(head, _read(lane, width), *_tail("", width, text_lines - 1))
    return Group(head, *_tail(lane.text, width, text_lines))


def _who(lane: Lane) -> Text:
    name = Text().append(f"{lane.part.name:<6}", style="bold")
    name.append(f"{_doing(lane)}", style=_STYLES[lane.mood])
    return name


def _doing(lane: Lane) -> str:
    if lane.mood is Mood.READING:
        return f"being read, {lane.num_computed:,} of {len(lane.part.prompt):,} tokens"
    if lane.mood is Mood.QUEUED:
        return f"waiting for an answer to {len(lane.part.prompt):,} tokens"
    if lane.num_outputs:
        return f"{lane.mood.value}, {lane.num_outputs} tokens"
    return lane.mood.value


def _gap(lane: Lane, now: float) -> Text:
    silence = lane.silence(now)
    if silence >= _FROZEN:
        return Text(f" silent for {silence:.1f} s ", style="bold white on red")
    if lane.num_outputs < 2:
        return Text("")
    return Text(f"longest silence {seconds(lane.worst_gap)}", style="dim")


def _tail(text: str, width: int, lines: int) -> list[Text]:
    """The last lines of a text, always as many, so that the picture does not jump."""
    wrapped = textwrap.wrap(one_line(text), width - _INDENT)
    shown = [_line(" " * _INDENT + line) for line in wrapped[-lines:]]
    return shown + [_line("")] * (lines - len(shown))


def _read(lane: Lane, width: int) -> Text:
    """How much of a prompt has been read, as a bar as wide as the text will be."""
    room = width - _INDENT
    done = round(room * lane.num_computed / len(lane.part.prompt))
    bar = Text(" " * _INDENT, no_wrap=True)
    return bar.append("█" * done, style=PREFILL).append("·" * (room - done), style="dim")


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="crop")


def _machine(stage: Stage, width: int) -> RenderableType:
    bar = max(10, width - 62)
    rows = Table.grid(padding=(0, 1))
    rows.add_column(width=9, style="dim")
    rows.add_column(width=bar)
    rows.add_column(no_wrap=True)
    step = stage.step
    rows.add_row("last step", _composition(step, bar) if step else "", _step(step) if step else "")
    rows.add_row("KV cache", _pages(step, bar) if step else "", _queue(step) if step else "")
    return Group(_line("─" * width), rows)


def _composition(step: StepRecord, width: int) -> Text:
    """Decodes in orange, prefill in blue, room under the limit as dots, all to one scale."""
    scale = width / max(1, step.budget)
    decode = max(1, round(step.num_decodes * scale)) if step.num_decodes else 0
    prefill = max(1, round(step.prefill_tokens * scale)) if step.prefill_tokens else 0
    prefill = min(prefill, width - decode)
    bar = Text().append("█" * decode, style=DECODE)
    bar.append("█" * prefill, style=PREFILL)
    bar.append("·" * (width - decode - prefill), style="dim")
    return bar


def _step(step: StepRecord) -> Text:
    words = Text().append(f"{step.num_decodes} decode", style=DECODE)
    words.append(" + ", style="dim")
    words.append(f"{step.prefill_tokens:,} prefill", style=PREFILL)
    lifted = step.num_decodes + step.prefill_tokens > step.budget
    limit = "tokens, limit lifted" if lifted else f"of {step.budget:,} tokens"
    words.append(f" {limit}, {seconds(step.t_end - step.t_start)}")
    return words


def _pages(step: StepRecord, width: int) -> RenderableType:
    return ProgressBar(
        total=step.pages_total, completed=step.pages_held, width=width, complete_style=PAGES
    )


def _queue(step: StepRecord) -> Text:
    return Text(
        f"{step.pages_held:,} of {step.pages_total:,} pages in use; "
        f"{step.running} running, {step.waiting} waiting"
    )


def seconds(value: float) -> str:
    """A duration for people: `123 ms`, `1.23 s`."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
