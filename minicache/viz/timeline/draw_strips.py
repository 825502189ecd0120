"""Drawing what lies under the lanes, each strip to a scale of its own that its caption names."""

from __future__ import annotations

from collections.abc import Sequence

from minicache.viz import text
from minicache.viz.format import count
from minicache.viz.svg import Drawing, box, short
from minicache.viz.timeline.layout import CAPTION, LABELS, LEFT, RIGHT, STRIP, Scale
from minicache.viz.timeline.model import Panel, Strip

LEAST = 2.5
"""A few decodes are drawn this high, so that they are seen beside thousands of prefill tokens."""
LIMIT_SHOWN = 1.6
"""The token limit is drawn when it is at most this many times the fullest step."""
POOL_SHOWN = 3.0
"""The same for the whole pool and the most pages ever used."""
SEPARATE = 4.0
"""Steps wider than this many pixels are told apart."""
_HEADINGS = {
    Strip.TOKENS: ("tokens", "in a step"),
    Strip.PAGES: ("KV pages", "in use"),
    Strip.QUEUE: ("requests", "waiting"),
}


def draw_strip(drawing: Drawing, scale: Scale, panel: Panel, strip: Strip, top: float) -> None:
    """One strip with its heading; `CAPTION + STRIP` pixels high."""
    first, second = _HEADINGS[strip]
    drawing.text(LABELS, top + CAPTION + 13, first, 12, anchor="end")
    drawing.text(LABELS, top + CAPTION + 28, second, 12, anchor="end")
    draw = {Strip.TOKENS: _token_strip, Strip.PAGES: _page_strip, Strip.QUEUE: _queue_strip}
    draw[strip](drawing, scale, panel, top + CAPTION)
    base = short(top + CAPTION + STRIP)
    drawing.path(f"M{LEFT:.0f} {base}H{RIGHT:.0f}", "line", stroke_opacity=0.5)


def _caption(drawing: Drawing, top: float, words: str) -> None:
    fitting = text.fit(words, RIGHT - LEFT, 11)
    drawing.text(RIGHT, top - 4, fitting, 11, "m", anchor="end")


def _dashed(drawing: Drawing, y: float) -> None:
    data = f"M{LEFT:.0f} {short(y)}H{RIGHT:.0f}"
    drawing.path(data, "line", stroke_dasharray="4 3", stroke_width=1.2)


def _token_strip(drawing: Drawing, scale: Scale, panel: Panel, top: float) -> None:
    bars = panel.bars
    most = max((bar.decodes + bar.prefill for bar in bars), default=0)
    if not most:
        return
    has_limit = panel.budget <= LIMIT_SHOWN * most
    unit = STRIP / (max(panel.budget, most) if has_limit else most)
    base = top + STRIP
    prefill: list[str] = []
    decodes: list[str] = []
    for bar in bars:
        x, width = scale.x(bar.start), max(scale.x(bar.stop) - scale.x(bar.start), 0.4)
        low = max(LEAST, bar.decodes * unit) if bar.decodes else 0.0
        least = low + (LEAST if bar.prefill else 0.0)
        high = min(STRIP, max(least, (bar.decodes + bar.prefill) * unit))
        if bar.prefill:
            prefill.append(box(x, base - high, width, high - low))
        if bar.decodes:
            decodes.append(box(x, base - low, width, low))
    busy = sum(scale.x(bar.stop) - scale.x(bar.start) for bar in bars if bar.prefill)
    apart = busy >= SEPARATE * len(prefill)
    drawing.path(prefill, "prefill" if apart else "solid")
    drawing.path(decodes, "bar")
    if has_limit:
        _dashed(drawing, base - panel.budget * unit)
    _caption(drawing, top, f"most {count(most)}, {_limit_words(panel.budget, most, has_limit)}")


def _limit_words(budget: int, most: int, has_limit: bool) -> str:
    if most > budget:
        return f"limit {count(budget)} (dashed) lifted for a whole prompt"
    return f"limit {count(budget)}" + (" (dashed)" if has_limit else "")


def _page_strip(drawing: Drawing, scale: Scale, panel: Panel, top: float) -> None:
    levels = panel.levels
    most = max((level.held + level.cached for level in levels), default=0)
    if not most:
        return
    has_total = panel.total_pages <= POOL_SHOWN * most
    unit = STRIP / (panel.total_pages if has_total else most)
    has_cached = any(level.cached for level in levels)
    if has_cached:
        both = [level.held + level.cached for level in levels]
        _area(drawing, scale, panel, both, top, unit, "faint")
    _area(drawing, scale, panel, [level.held for level in levels], top, unit, "area")
    held = max(level.held for level in levels)
    words = f"most {count(held)} of {count(panel.total_pages)} pages held"
    if has_cached:
        words += f", up to {count(max(level.cached for level in levels))} cached (lighter)"
    if has_total:
        _dashed(drawing, top)
        words += ", whole pool dashed"
    _caption(drawing, top, words)


def _queue_strip(drawing: Drawing, scale: Scale, panel: Panel, top: float) -> None:
    waiting = [level.waiting for level in panel.levels]
    most = max(waiting, default=0)
    if most:
        _area(drawing, scale, panel, waiting, top, STRIP / most, "area")
    _caption(drawing, top, f"most {count(most)} waiting")


def _area(
    drawing: Drawing, scale: Scale, panel: Panel, values: Sequence[int], top: float,
    unit: float, css: str,
) -> None:  # fmt: skip
    """A curve of steps, filled down to the base."""
    base = top + STRIP
    points = [f"M{short(scale.x(panel.levels[0].start))} {short(base)}"]
    for level, value in zip(panel.levels, values, strict=True):
        points.append(f"H{short(scale.x(level.start))}V{short(base - value * unit)}")
    end = scale.x(min(max(panel.end, panel.levels[-1].start), scale.stop))
    drawing.path(f"{''.join(points)}H{short(end)}V{short(base)}z", css)
