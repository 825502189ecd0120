"""What a demo leaves behind: the timeline as a picture, the trace for Perfetto, the numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minicache import metrics
from minicache.demo.numbers import Comparison
from minicache.trace import Trace
from minicache.trace.perfetto import to_perfetto


def write_numbers(file: Path, comparison: Comparison, about: Mapping[str, object]) -> None:
    """The numbers as JSON: `about` the runs, then `before`, `after` and `ratio`: after / before."""
    content = {**about, "ratio_is": "after / before", **comparison.as_dict()}
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_timeline(file: Path, traces: Mapping[str, Trace]) -> None:
    """The runs under each other, on one time axis."""
    from minicache.viz import timeline

    picture = timeline.svg(timeline.state(traces, noun="chat"), standalone=True)
    file.write_text(picture, encoding="utf-8")


def write_perfetto(file: Path, traces: Mapping[str, Trace]) -> None:
    """All runs in one trace, each from time 0, so that they can be compared by eye."""
    events: list[dict[str, Any]] = []
    for run, (title, trace) in enumerate(traces.items()):
        events += _beside(title, trace, first_process=2 * run)
    sources = {title: trace.source for title, trace in traces.items()}
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": sources}
    file.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")


def _beside(title: str, trace: Trace, first_process: int) -> list[dict[str, Any]]:
    """The events of one run, under process ids and names of its own."""
    start = round(metrics.whole(trace).start_s * 1e6)
    events: list[dict[str, Any]] = json.loads(to_perfetto(trace))["traceEvents"]
    for event in events:
        event["pid"] += first_process
        if "ts" in event:
            event["ts"] -= start
        if event["name"] == "process_name":
            event["args"]["name"] = f"{title}: {event['args']['name']}"
    return events
