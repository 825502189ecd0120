"""What a person is told at the end: the table, what it means, and where the files are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from rich.console import Console

from minicache.demo import files
from minicache.demo.options import Options
from minicache.demo.serving import Run, title
from minicache.demo.shown import Played, Shown
from minicache.demo.stage import Mood
from minicache.demo.table import table
from minicache.demo.verdict import verdict
from minicache.trace import Trace


def tell(console: Console, options: Options, shown: Shown) -> None:
    """Print the report of `shown` and write its files."""
    comparison = shown.comparison()
    console.print(table(comparison))
    lines = [verdict(comparison), *shown.failures(), *map(_cancelled, shown.runs.values())]
    for line in filter(None, lines):
        console.print(line, highlight=False)
    for line in _write(options, shown):
        console.print(line, highlight=False, soft_wrap=True)


def _cancelled(played: Played) -> str:
    lanes = played.stage.lanes.values()
    count = sum(lane.mood is Mood.CANCELLED for lane in lanes)
    if not count:
        return ""
    return (
        f"Stopped: {count} requests were cancelled, and {played.free_pages} of {played.num_pages} "
        "KV pages are free again."
    )


def _write(options: Options, shown: Shown) -> list[str]:
    """Write what there is, and say where."""
    traces = {run.value: played.trace for run, played in shown.runs.items()}
    if not traces:
        return []
    timeline, perfetto = options.out / "timeline.svg", options.out / "trace.json"
    titles = {run: title(run, options) for run in Run}
    files.write_timeline(timeline, {titles[r]: played.trace for r, played in shown.runs.items()})
    files.write_perfetto(perfetto, traces)
    said = [f"Timeline: {timeline}", f"Trace:    {perfetto} (open it in ui.perfetto.dev)"]
    if options.json is not None:
        files.write_numbers(options.json, shown.comparison(), _about(options, traces))
        said.append(f"Numbers:  {options.json}")
    return said


def _about(options: Options, traces: Mapping[str, Trace]) -> dict[str, object]:
    """With what the numbers were made, so that they can be made again."""
    return {
        "model": options.model,
        "load_format": options.load_format,
        "dtype": options.dtype,
        "policy": options.policy,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "source": next(iter(traces.values())).source,
        "date": date.today().isoformat(),
    }
