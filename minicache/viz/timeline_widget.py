"""The scheduling timeline with controls: pick a run, a step, a zoom.

What is shown is a pure function of the controls; nothing accumulates, and Reset is the first view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from minicache.trace import Trace
from minicache.viz.timeline import Timeline, summary, svg
from minicache.viz.timeline.finding import find
from minicache.viz.timeline.run import Run, prepare
from minicache.viz.timeline.selection import selection
from minicache.viz.timeline.state import compose

ZOOMS = (1, 4, 16, 64)


class TimelineWidget:
    """An interactive timeline for a notebook; `box` is the ipywidgets root.

    Controls: `run` (which trace), `step` and the slider beside it (which step), `back`, `forward`
    and `reset` buttons, `zoom` (around the step). All work from the keyboard; that is why there is
    no drop-down list, whose arrow keys JupyterLab takes for itself. `picture` holds the SVG.
    """

    def __init__(
        self,
        traces: Trace | Mapping[str, Trace],
        *,
        baseline: str | None = None,
        noun: str = "request",
    ) -> None:
        """`traces` by the names to choose from. The one named `baseline` is always drawn first, so
        that the chosen one is seen against it. `noun` is what to call a request ('chat').

        Raises `ValueError` for no trace and `KeyError` for a baseline that is not among them.
        """
        named = {"one run": traces} if isinstance(traces, Trace) else dict(traces)
        if not named:
            raise ValueError("There is no trace to show; give at least one.")
        if baseline is not None and baseline not in named:
            raise KeyError(f"There is no trace {baseline!r}; choose from {', '.join(named)}.")
        self._runs = {name: prepare(name, trace) for name, trace in named.items()}
        self._baseline = baseline
        self._noun = noun
        self._wholes: dict[str, Timeline] = {}
        self._end = max(*(run.end for run in self._runs.values()), 1e-3)
        self._build(next(name for name in reversed(named) if name != baseline or len(named) == 1))

    @property
    def state(self) -> Timeline:
        """What is drawn now."""
        run = self._runs[self.run.value]
        picked = selection(run, self.step.value) if len(run.step_starts) else None
        whole = self.zoom.value == 1 or picked is None
        return replace(self._whole(run) if whole else self._part(run), selection=picked)

    def _whole(self, run: Run) -> Timeline:
        """On the time axis that all runs share; worked out once."""
        if run.name not in self._wholes:
            window = (0.0, self._end)
            self._wholes[run.name] = compose(self._shown(run), self._noun, window)
        return self._wholes[run.name]

    def _part(self, run: Run) -> Timeline:
        """The part of it around the picked step."""
        at = int(np.flatnonzero(run.trace.steps.column("step") == self.step.value)[0])
        width = self._end / self.zoom.value
        middle = float(run.step_starts[at] + run.step_stops[at]) / 2
        start = min(max(0.0, middle - width / 2), self._end - width)
        return compose(self._shown(run), self._noun, (start, start + width))

    def _build(self, first: str) -> None:
        """Make the controls, then draw once."""
        import ipywidgets as W

        names = list(self._runs)
        self._first = first
        self.run: Any = W.ToggleButtons(
            options=names, value=first, description="run", style={"button_width": "auto"}
        )
        self.zoom: Any = W.ToggleButtons(
            options=[(f"{zoom}×", zoom) for zoom in ZOOMS], value=1, description="zoom",
            style={"button_width": "4em"},
        )  # fmt: skip
        self.step: Any = W.BoundedIntText(
            description="step", continuous_update=False, layout={"width": "11em"}
        )
        self.slider: Any = W.IntSlider(readout=False, layout={"width": "16em"})
        self.back: Any = W.Button(description="Back", tooltip="One step back")
        self.forward: Any = W.Button(description="Step", tooltip="One step on")
        self.reset: Any = W.Button(description="Reset", tooltip="Back to the first view")
        for button in (self.back, self.forward, self.reset):
            button.layout.width = "6em"
        self.picture: Any = W.HTML()
        above = [self.run, self.zoom] if len(names) > 1 else [self.zoom]
        steps = [self.step, self.slider, self.back, self.forward, self.reset]
        wrapped = {"flex_flow": "row wrap"}
        rows = [W.HBox(row, layout=wrapped) for row in (above, steps)]
        self.box: Any = W.VBox([*rows, self.picture])
        self._connect(W)
        self._choose()

    def _connect(self, widgets: Any) -> None:
        widgets.link((self.step, "value"), (self.slider, "value"))
        self.run.observe(self._choose, "value")
        for control in (self.step, self.zoom):
            control.observe(self._draw, "value")
        self.back.on_click(partial(self._move, -1))
        self.forward.on_click(partial(self._move, 1))
        self.reset.on_click(self._reset)

    def _choose(self, _change: object = None) -> None:
        """Another run: its steps, and the step that tells most."""
        self.step.unobserve(self._draw, "value")
        self._pick()
        self.step.observe(self._draw, "value")
        self._draw()

    def _pick(self) -> None:
        run = self._runs[self.run.value]
        numbers = run.trace.steps.column("step")
        low, high = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, 0)
        both = (self.step, self.slider)
        for control in both:  # widen first: the two are linked, and clamp each other
            control.min, control.max = min(low, control.min), high
        for control in both:
            control.min, control.disabled = low, not len(numbers)
        self.step.value = telling_step(run)

    def _move(self, by: int, _button: object = None) -> None:
        self.step.value = min(max(self.step.value + by, self.step.min), self.step.max)

    def _reset(self, _button: object = None) -> None:
        self.zoom.value = 1
        self.run.value = self._first
        self.step.value = telling_step(self._runs[self._first])

    def _shown(self, run: Run) -> list[Run]:
        base = self._runs.get(self._baseline) if self._baseline else None
        return [run] if base is None or base is run else [base, run]

    def _draw(self, _change: object = None) -> None:
        self.picture.value = svg(self.state)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The live widget; and for readers without a kernel the picture, and a line of text."""
        shown = self.state
        bundle: dict[str, Any] = dict(self.box._repr_mimebundle_(**options) or {})
        bundle["text/plain"] = summary(shown)
        bundle["image/svg+xml"] = svg(shown, standalone=True)
        return bundle


def telling_step(run: Run) -> int:
    """The number of the longest step within the worst gap, or the first step; 0 without any."""
    numbers = run.trace.steps.column("step")
    if not len(numbers):
        return 0
    found = find(run)
    if found is None:
        return int(numbers[0])
    inside = np.minimum(run.step_stops, found.gap.stop) - np.maximum(
        run.step_starts, found.gap.start
    )
    return int(numbers[int(np.argmax(inside))])
