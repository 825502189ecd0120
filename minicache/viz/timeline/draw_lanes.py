"""Drawing lanes: one path a lane and kind, whatever the number of steps."""

from __future__ import annotations

from collections.abc import Sequence

from minicache.viz import text
from minicache.viz.svg import Drawing, box, short
from minicache.viz.timeline.layout import (
    LABELS,
    LEFT,
    MARGIN,
    RIGHT,
    LanePlace,
    LaneStyle,
    Scale,
    lane_style,
)
from minicache.viz.timeline.model import THIN, TICK, Bracket, Chunk, Ending, Lane

NUMBER_ROOM = 18.0
"""A chunk narrower than this many pixels shows no number."""


def draw_lanes(
    drawing: Drawing, scale: Scale, lanes: Sequence[Lane], places: Sequence[LanePlace], hatch: str
) -> None:
    """All lanes of a panel. `hatch` is the paint of preempted time."""
    style = lane_style(len(lanes))
    for lane, place in zip(lanes, places, strict=True):
        drawing.open(lane.about)
        _label(drawing, lane, place, style)
        _waits(drawing, scale, lane, place, style)
        spans = (box(*_span(scale, span, place)) for span in lane.preempted)
        drawing.path(spans, "preempted", fill=hatch)
        _chunks(drawing, scale, lane, place, style)
        _tokens(drawing, scale, lane, place)
        _markers(drawing, scale, lane, place, style)
        _end(drawing, scale, lane, place)
        _notes(drawing, scale, lane, place)
        drawing.close()


def draw_guides(
    drawing: Drawing, scale: Scale, bracket: Bracket, top: float, places: Sequence[LanePlace]
) -> None:
    """From the bracket down to the last lane that felt the gap."""
    bottom = places[bracket.depth].bottom + 3
    ends = _bracket_ends(scale, bracket)
    guides = (f"M{short(x)} {short(top)}V{short(bottom)}" for x in ends)
    drawing.path(guides, "line", stroke_opacity=0.5, stroke_dasharray="2 3")


def _bracket_ends(scale: Scale, bracket: Bracket) -> tuple[float, ...]:
    """Its two ends, or its middle where they are too close to be told apart."""
    left, right = scale.x(bracket.start), scale.x(bracket.stop)
    return (left, right) if right - left >= 5 else ((left + right) / 2,)


def draw_bracket(drawing: Drawing, scale: Scale, bracket: Bracket, top: float) -> None:
    """The worst gap over the lanes; the label stands beside a short one."""
    ends, y = _bracket_ends(scale, bracket), top + 8
    left, right = ends[0], ends[-1]
    data = f"M{short(left)} {short(y + 6)}v-6"
    data += f"H{short(right)}v6" if right > left else ""
    drawing.path(data, "line", stroke_width=1.8)
    size = 13.0
    room = max(left - LEFT, RIGHT - right, right - left - 30) - 8
    label = text.fit(bracket.label, room, size, bold=True)
    wide = text.width(label, size, bold=True)
    if wide <= right - left - 30:
        middle = (left + right) / 2
        drawing.rect(middle - wide / 2 - 8, y - 8, wide + 16, 16, "paper")
        drawing.text(middle, y + 5, label, size, anchor="middle", bold=True)
    elif left - LEFT >= wide + 8:
        drawing.text(left - 8, y + 5, label, size, anchor="end", bold=True)
    else:
        drawing.text(right + 8, y + 5, label, size, bold=True)


def _span(
    scale: Scale, span: tuple[float, float], place: LanePlace, inset: float = 0.0
) -> tuple[float, float, float, float]:
    """The box of a span of time on a lane."""
    left, right = scale.x(span[0]), scale.x(span[1])
    width = max(right - left - 2 * inset, 0.8)
    return left + inset, place.top + inset, width, place.bottom - place.top - 2 * inset


def _label(drawing: Drawing, lane: Lane, place: LanePlace, style: LaneStyle) -> None:
    size = style.type_size
    label = text.fit(lane.label, LABELS - MARGIN, size, bold=lane.bold)
    drawing.text(LABELS, place.centre + 4, label, size, anchor="end", bold=lane.bold)


def _waits(drawing: Drawing, scale: Scale, lane: Lane, place: LanePlace, style: LaneStyle) -> None:
    drawing.path((box(*_span(scale, span, place, 0.5)) for span in lane.waits), "wait")
    for span in lane.waits:
        if style.roomy and scale.x(span.stop) - scale.x(span.start) >= 72:
            drawing.text(scale.x(span.start) + 10, place.centre + 4, "waiting", 11, "m")


def _chunks(drawing: Drawing, scale: Scale, lane: Lane, place: LanePlace, style: LaneStyle) -> None:
    taller = LanePlace(place.top - 1, place.centre, place.bottom + 1)
    boxes = [(_span(scale, chunk[:2], taller), chunk) for chunk in lane.chunks]
    thin = [area for area, chunk in boxes if chunk.number > 1 or area[2] < THIN]
    drawing.path((box(*area) for area in thin), "solid")
    wide = [area for area, chunk in boxes if chunk.number == 1 and area[2] >= THIN]
    drawing.path((box(*area) for area in wide), "prefill")
    if style.roomy:
        for area, chunk in boxes:
            _chunk_text(drawing, area, chunk, alone=len(boxes) == 1)


def _chunk_text(
    drawing: Drawing, area: tuple[float, float, float, float], chunk: Chunk, *, alone: bool
) -> None:
    choices = [str(chunk.ordinal)] if chunk.number == 1 else []
    if alone and chunk.number == 1:
        choices = ["prefill in one step", "one step"]
    if chunk.again:
        choices = ["prefill again", "again"]
    if chunk.number > 1:
        choices = [f"prefill in {chunk.number} chunks", f"{chunk.number} chunks"]
    for words in choices:
        if area[2] >= max(NUMBER_ROOM, text.width(words, 11) + 4):
            middle = area[0] + area[2] / 2
            drawing.text(middle, area[1] + area[3] / 2 + 4, words, 11, "w", anchor="middle")
            return


def _tokens(drawing: Drawing, scale: Scale, lane: Lane, place: LanePlace) -> None:
    height = place.bottom - place.top
    boxes: list[str] = []
    for tokens in lane.tokens:
        left = max(scale.x(tokens.start) - TICK / 2, LEFT)
        boxes.append(box(left, place.top, scale.x(tokens.stop) + TICK / 2 - left, height))
    drawing.path(boxes, "decode")


def _markers(
    drawing: Drawing, scale: Scale, lane: Lane, place: LanePlace, style: LaneStyle
) -> None:
    """Arrival and first token: above the bar if there is room, and apart from each other."""
    arrival = None if lane.arrival is None else scale.x(lane.arrival)
    first = None if lane.first_token is None else scale.x(lane.first_token)
    if arrival is not None:
        y = place.top - 6.5 if style.roomy else place.centre
        drawing.path(arrival_mark(arrival, y), "mark", stroke_width=1.4)
    if first is not None:
        apart = arrival is None or abs(first - arrival) >= 13
        y = place.top - 8 if style.roomy and apart else place.centre
        drawing.path(
            first_token_mark(first, y, 5.5 if style.roomy else 4.5), "mark", stroke_width=1.5
        )


def arrival_mark(x: float, y: float) -> str:
    """A triangle that points down, centred at (x, y)."""
    return f"M{short(x - 5)} {short(y - 4.5)}h10l-5 9z"


def first_token_mark(x: float, y: float, radius: float = 5.5) -> str:
    """A diamond centred at (x, y)."""
    r = short(radius)
    return f"M{short(x)} {short(y - radius)}l{r} {r}l-{r} {r}l-{r} -{r}z"


def end_mark(drawing: Drawing, ending: Ending, x: float, y: float, height: float) -> None:
    """How a lane ends, centred at (x, y): a bar, a cross, a crossed or a barred circle."""
    if ending is Ending.FINISHED:
        data = f"M{short(x)} {short(y - height / 2)}v{short(height)}"
        drawing.path(data, "line", stroke_width=2.4)
    elif ending is Ending.CANCELLED:
        data = f"M{short(x - 4)} {short(y - 4)}l8 8m-8 0l8 -8"
        drawing.path(data, "paper", stroke="none")
        drawing.path(data, "line", stroke_width=2.2)
    else:
        circle = f"M{short(x - 5)} {short(y)}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z"
        cross = f"M{short(x - 3)} {short(y - 3)}l6 6"
        cross += "m-6 0l6 -6" if ending is Ending.FAILED else ""
        drawing.path(circle + cross, "bad", stroke_width=1.8)


def _end(drawing: Drawing, scale: Scale, lane: Lane, place: LanePlace) -> None:
    if lane.end is None or lane.ending is None:
        return
    x = scale.x(lane.end)
    end_mark(drawing, lane.ending, x, place.centre, place.bottom - place.top + 5)
    room = RIGHT - x - 10
    if lane.remark and room >= 60:
        drawing.text(x + 10, place.centre + 4, text.fit(lane.remark, room, 11), 11, "m")


def _notes(drawing: Drawing, scale: Scale, lane: Lane, place: LanePlace) -> None:
    """Under the bar: the last note at its end, the first one at its start if there is room left."""
    if not lane.notes:
        return
    y = place.bottom + 15
    first, last = lane.notes[0], lane.notes[-1]
    left, wide = scale.x(first.start), text.width(first.text, 11)
    if first is last:
        drawing.text(min(left, RIGHT - wide), y, first.text, 11, "m")
        return
    end = max(scale.x(last.stop), LEFT + text.width(last.text, 11))
    drawing.text(end, y, last.text, 11, "m", anchor="end")
    if left + wide + 16 <= end - text.width(last.text, 11):
        drawing.text(left, y, first.text, 11, "m")
