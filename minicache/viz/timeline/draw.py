"""From the state of a timeline to its SVG."""

from __future__ import annotations

from zlib import crc32

from minicache.viz import text
from minicache.viz.svg import Drawing, clean, document, short
from minicache.viz.theme import PREEMPTED
from minicache.viz.timeline.draw_lanes import draw_bracket, draw_guides, draw_lanes
from minicache.viz.timeline.draw_strips import draw_strip
from minicache.viz.timeline.layout import (
    BETWEEN,
    BRACKET,
    CAPTION,
    LEFT,
    MARGIN,
    RIGHT,
    STRIP,
    STRIP_GAP,
    WIDTH,
    Scale,
    place_lanes,
)
from minicache.viz.timeline.legend import draw_legend
from minicache.viz.timeline.model import Panel, Readout, Selection, Timeline

_READOUTS = ((380.0, 164.0), (530.0, 138.0), (684.0, 142.0))
"""Where the read-outs end, and how wide their labels may be."""
SMALL_TITLE = 13.5
"""The size of a panel's title where 15 px do not fit."""


def svg(timeline: Timeline, *, id: str = "", standalone: bool = False) -> str:
    """The picture, 700 pixels wide. A pure function: the same state gives the same text.

    `id` names the element and scopes its style; by default it follows from the content.
    `standalone` is for a file that is opened on its own: light or dark as the system asks.
    """
    id = id or f"mc-timeline-{crc32(repr(timeline).encode()):08x}"
    drawing = Drawing()
    hatch = f"{id}-hatch"
    y = _head(drawing, timeline)
    y = draw_legend(drawing, timeline, y, f"url(#{hatch})")
    for number, panel in enumerate(timeline.panels):
        is_last = number == len(timeline.panels) - 1
        selection = timeline.selection if is_last else None
        y = _panel(drawing, timeline, panel, selection, y + BETWEEN, f"url(#{hatch})")
    if timeline.selection is not None:
        y = _selection(drawing, timeline.selection, y + 12)
    y = _sources(drawing, timeline.sources, y + 20)
    return document(
        drawing, id=id, width=WIDTH, height=y + MARGIN - 4, label=summary(timeline),
        standalone=standalone, defs=_hatch(hatch),
    )  # fmt: skip


def summary(timeline: Timeline) -> str:
    """The picture in one line of text."""
    said = f"{timeline.headline}. {timeline.subline}".strip()
    said += f" {timeline.selection.title}." if timeline.selection else ""
    return clean(said)


def _hatch(id: str) -> str:
    return (
        f'<defs><pattern id="{id}" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" class="paper"/>'
        f'<rect width="3" height="6" fill="{PREEMPTED}"/></pattern></defs>'
    )


def _head(drawing: Drawing, timeline: Timeline) -> float:
    """Headline and second line; returns where the next thing may start."""
    room = WIDTH - 2 * MARGIN
    sizes = (21.0, 20.0, 19.0, 18.0)
    fitting = (s for s in sizes if text.width(timeline.headline, s, bold=True) <= room)
    size = next(fitting, 18.0)
    y = 34.0 - 21.0
    for line in text.wrap(timeline.headline, room, size, bold=True):
        y += 21.0
        drawing.text(MARGIN, y, line, size, bold=True)
    y += 7.0
    for line in text.wrap(timeline.subline, room, 12.5):
        y += 17.0
        drawing.text(MARGIN, y, line, 12.5)
    return y + 21.0


def _panel(
    drawing: Drawing,
    timeline: Timeline,
    panel: Panel,
    selection: Selection | None,
    top: float,
    hatch: str,
) -> float:
    """One run: read-outs, lanes, strips, axis."""
    scale = Scale(timeline)
    stacked = any(map(_is_long, timeline.panels))
    y = _panel_head(drawing, panel, top, stacked=stacked)
    behind = len(drawing.parts)
    lanes_top = y + (BRACKET if panel.gap else 0.0)
    places, bottom = place_lanes(panel.lanes, lanes_top)
    draw_lanes(drawing, scale, panel.lanes, places, hatch)
    if panel.gap:
        draw_bracket(drawing, scale, panel.gap, y)
    if not panel.lanes:
        drawing.text(LEFT + 10, bottom + 14, "No request in this window.", 11.5, "m")
        bottom += 25.0
    bottom += 4.0
    for strip in timeline.strips:
        draw_strip(drawing, scale, panel, strip, bottom)
        bottom += CAPTION + STRIP + STRIP_GAP
    bottom -= STRIP_GAP if timeline.strips else 0.0
    back = Drawing()
    _grid(back, scale, panel, lanes_top - 4, bottom)
    if panel.gap and places:
        draw_guides(back, scale, panel.gap, y + 16, places)
    if selection:
        _highlight(back, scale, selection, lanes_top - 4, bottom)
    drawing.parts[behind:behind] = back.parts
    return _axis(drawing, scale, bottom)


def _panel_head(drawing: Drawing, panel: Panel, top: float, *, stacked: bool) -> float:
    """Title and note at the left, read-outs at the right; or under them, when `stacked`."""
    room = WIDTH - 2 * MARGIN if stacked else _title_room(panel)
    size = 15.0 if text.width(panel.title, 15, bold=True) <= room else SMALL_TITLE
    title = text.fit(panel.title, room, size, bold=True)
    drawing.text(MARGIN, top + 15, title, size, bold=True)
    drawing.text(MARGIN, top + 33, text.fit(panel.note, room, 11.5), 11.5, "m")
    y = top + (42.0 if stacked else 0.0)
    for (end, room), readout in zip(_READOUTS, panel.readouts, strict=True):
        _readout(drawing, readout, end, y + 15, room)
    return y + 46.0


def _title_room(panel: Panel) -> float:
    """Pixels at the left of the first read-out."""
    first = panel.readouts[0]
    wide = max(_readout_width(first), text.width(first.label, 11.5))
    return _READOUTS[0][0] - wide - MARGIN - 18


def _is_long(panel: Panel) -> bool:
    """Whether title or note do not fit beside the read-outs."""
    title = text.width(panel.title, SMALL_TITLE, bold=True)
    return max(title, text.width(panel.note, 11.5)) > _title_room(panel)


def _readout_width(readout: Readout) -> float:
    change = text.width(readout.change, 12) + 6 if readout.change else 0.0
    return text.width(readout.value, 17, bold=True) + change


def _readout(drawing: Drawing, readout: Readout, end: float, y: float, room: float) -> None:
    shown = _readout_width(readout) <= room
    change = text.width(readout.change, 12) + 6 if readout.change and shown else 0.0
    value = text.fit(readout.value, room, 17, bold=True)
    drawing.text(end - change, y, value, 17, anchor="end", bold=True)
    if change:
        drawing.text(end, y, readout.change, 12, "m", anchor="end")
    label = text.fit(readout.label, room, 11.5)
    drawing.text(end, y + 18, label, 11.5, "m", anchor="end")


def _grid(drawing: Drawing, scale: Scale, panel: Panel, top: float, bottom: float) -> None:
    """Round times, and the boundaries of steps while they can be told apart."""
    span = f"{short(top)}V{short(bottom)}"
    steps = (f"M{short(scale.x(time))} {span}" for time in panel.boundaries)
    drawing.path(steps, "grid", stroke_dasharray="1 3")
    drawing.path((f"M{short(scale.x(time))} {span}" for time, _ in scale.ticks()), "grid")


def _highlight(
    drawing: Drawing, scale: Scale, selection: Selection, top: float, bottom: float
) -> None:
    """The picked step, if it is in the window."""
    start, stop = max(selection.start, scale.start), min(selection.stop, scale.stop)
    if stop <= start:
        return
    left, width = scale.x(start), max(scale.x(stop) - scale.x(start), 2.0)
    drawing.rect(left, top, width, bottom - top, "picked")


def _axis(drawing: Drawing, scale: Scale, bottom: float) -> float:
    for time, label in scale.ticks():
        x, half = scale.x(time), text.width(label, 11.5) / 2
        x = min(max(x, MARGIN + half), WIDTH - 6 - half)
        drawing.text(x, bottom + 15, label, 11.5, "m", anchor="middle")
    return bottom + 19.0


def _selection(drawing: Drawing, selection: Selection, top: float) -> float:
    y = top + 12.0
    for line in text.wrap(selection.title, WIDTH - 2 * MARGIN, 12, bold=True):
        drawing.text(MARGIN, y, line, 12, bold=True)
        y += 16.0
    for line in selection.lines:
        drawing.text(MARGIN, y, text.fit(line, WIDTH - 2 * MARGIN, 11.5), 11.5)
        y += 15.0
    return y


def _sources(drawing: Drawing, sources: tuple[str, ...], top: float) -> float:
    """Where the numbers are from, in the corner."""
    y = top
    for number, source in enumerate(sources):
        bold = number == 0
        for line in text.wrap(source, WIDTH - 2 * MARGIN, 11, bold=bold):
            drawing.text(RIGHT, y + 11, line, 11, "m", anchor="end", bold=bold)
            y += 16.0
    return y
