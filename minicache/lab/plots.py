"""Plots of the lessons: one look, the source of the numbers in the corner, a sentence beside each.

A plot is drawn with matplotlib and shown as SVG on a white card, which reads in both themes. The
sentence says what the plot shows: for a screen reader, and for readers in a hurry.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from minicache.lab.show import STYLE as TEXT
from minicache.lab.show import Shown, escape

MEASURED, FORMULA = "#0072B2", "#222222"
"""Measured points are filled blue circles, formulas are dark dashed lines: two cues each."""
INK, MUTED = "#222222", "#595959"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "minicache",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
    "font.size": 10.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}


def axes(width: float = 7.0, height: float = 3.8) -> Axes:
    """An empty plot in the course's look; sizes in inches of 96 pixels."""
    with mpl.rc_context(STYLE):
        return Figure(figsize=(width, height), layout="constrained").add_subplot()


@dataclass(frozen=True, slots=True)
class Picture:
    """A finished plot: an SVG, and the sentence that says what it shows."""

    svg: str
    sentence: str

    def _ipython_display_(self) -> None:
        """The picture, then the sentence under it. Readers without pictures get the sentence."""
        from IPython.display import display

        display({"image/svg+xml": self.svg, "text/plain": self.sentence}, raw=True)
        display(Shown(f'<div style="{TEXT}">{escape(self.sentence)}</div>', self.sentence))


def picture(plot: Axes, sentence: str, source: str) -> Picture:
    """Finish a plot: `source` goes into the corner, `sentence` says what there is to see."""
    figure: Any = plot.figure
    with mpl.rc_context(STYLE):
        if plot.get_legend_handles_labels()[0]:
            plot.legend()
        figure.supxlabel(source, fontsize=8.5, color=MUTED, x=0.995, ha="right")
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", facecolor="white", metadata={"Date": None})
    svg = buffer.getvalue()
    name = f'<svg role="img" aria-label="{escape(sentence)}" '
    return Picture(svg[svg.index("<svg") :].replace("<svg ", name, 1), sentence)


def length_axis(plot: Axes, lengths: list[int], label: str) -> None:
    """A logarithmic axis of token counts, marked at the lengths that were used."""
    plot.set_xscale("log", base=2)
    plot.set_xticks(lengths, [f"{n:,}" if n < 1024 else f"{n // 1024}k" for n in lengths])
    plot.minorticks_off()
    plot.set_xlabel(label)


def log_axis(plot: Axes, label: str) -> None:
    """A logarithmic vertical axis with plain numbers: 100, 200, 500, 1,000."""
    plot.set_yscale("log")
    plot.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    plot.yaxis.set_major_formatter(FuncFormatter(_plain))
    plot.yaxis.set_minor_locator(NullLocator())
    plot.set_ylabel(label)


def _plain(value: float, _position: int) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def color_bar(plot: Axes, image: Any, label: str) -> None:
    """The scale of an image's colours, beside it."""
    figure: Any = plot.figure
    with mpl.rc_context(STYLE):
        figure.colorbar(image, ax=plot, label=label, shrink=0.8)
