"""The timeline: what it says, what it draws, and that no eye would complain."""

from __future__ import annotations

import re
from math import inf

import pytest
import svg_checks
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_traces import (
    Ask,
    Engine,
    chunked_trace,
    eventful_trace,
    freeze_asks,
    frozen_trace,
)

from minicache.plan import PlanItem, StepPlan, StepResult
from minicache.request import FinishReason, Request
from minicache.trace import EventKind, Occupancy, Trace
from minicache.viz import format, text, theme
from minicache.viz.timeline import Strip, Timeline, state, summary, svg
from minicache.viz.timeline.layout import LEFT, RIGHT, Scale, round_step
from minicache.viz.timeline.model import Ending


@pytest.fixture(scope="module")
def both() -> Timeline:
    traces = {"Whole-prompt prefill": frozen_trace(), "Chunked, budget 2,048": chunked_trace()}
    return state(traces, noun="chat")


@pytest.fixture(scope="module")
def eventful() -> Timeline:
    return state(eventful_trace())


def many(number: int, **engine: int | None) -> Trace:
    """A deterministic crowd."""
    prompts, outputs = (60, 300, 900, 3000), (5, 12, 25, 40)
    asks = [
        Ask(
            f"request-{i}", (i * 37 % 100) / 50, prompts[i * 7 % 4], outputs[i * 5 % 4],
            cancel=1.2 if i % 9 == 4 else inf,
        )
        for i in range(number)
    ]  # fmt: skip
    return Engine(asks, **engine).run()


# The checks themselves must see what they are for.


def drawing(*parts: str, style: str = "#a text{x:y}") -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" id="a" viewBox="0 0 100 50" role="img" '
        f'aria-label="b"><style>{style}</style>{"".join(parts)}</svg>'
    )


def words(x: float, y: float, said: str, size: float = 12, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" {more}>{said}</text>'


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ([words(5, 20, "hello"), words(20, 22, "there")], "overlap"),
        ([words(80, 20, "hello")], "reaches out"),
        ([words(5, 20, "hello", more='text-anchor="end"')], "reaches out"),
        ([words(5, 20, "hello", 10.5)], "under 11 px"),
        ([words(5, 20, "hello", more='class="w"')], "not on a coloured box"),
        ([words(5, 20, "x"), '<path class="decode" d="M0 5h40v30h-40z"/>'], "lies on"),
        (['<path d="M0 nan"/>'], "not finite"),
        (["<g/>"] * 2001, "elements are more than"),
    ],
)  # fmt: skip
def test_the_checks_see(parts: list[str], fault: str) -> None:
    found = svg_checks.faults(drawing(*parts))
    assert len(found) == 1 and fault in found[0], found


def test_the_checks_see_a_style_that_reaches_out() -> None:
    style = "@media(prefers-color-scheme:dark){text{x:y}#a{z:w}}#a g{x:y}"
    assert svg_checks.faults(drawing(style=style)) == [
        "the style rule 'text' reaches beyond this picture"
    ]


def test_the_checks_pass_what_is_well() -> None:
    good = [words(5, 20, "hello"), words(50, 20, "there"), words(50, 40, "x", more='class="w"')]
    box = '<path class="prefill" d="M45 25h40v20h-40z"/>'
    assert svg_checks.faults(drawing(*good, box)) == []


def test_contrast() -> None:
    assert svg_checks.contrast("#000", "#fff") == pytest.approx(21)
    assert svg_checks.contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


# Words.


def test_the_headline_is_the_finding(both: Timeline) -> None:
    assert both.headline == "One long prompt freezes three chats for 3.4 s"
    assert both.subline == (
        "Below, the longest wait is 161 ms. "
        "The price: the long prompt’s own answer starts 4 % later."
    )
    assert summary(both) == f"{both.headline}. {both.subline}"
    assert "\n" not in summary(both)


def test_the_order_of_the_panels_does_not_change_the_finding() -> None:
    timeline = state({"after": chunked_trace(), "before": frozen_trace()}, noun="chat")
    assert timeline.headline == "One long prompt freezes three chats for 3.4 s"
    assert timeline.subline.startswith("Above, the longest wait is 161 ms.")


def test_one_frozen_run_says_what_averages_hide() -> None:
    timeline = state(frozen_trace())
    assert timeline.headline == "One long prompt freezes three requests for 3.4 s"
    assert timeline.subline.endswith("averages hide it.")


def test_a_chunked_run_freezes_nobody() -> None:
    timeline = state(chunked_trace(), noun="chat")
    assert timeline.headline == "Beside one long prompt, three chats wait 161 ms for a token"


def test_a_preempted_request_is_the_finding(eventful: Timeline) -> None:
    assert eventful.headline == "epsilon loses its pages and waits 52 ms for its next token"
    assert eventful.sources[-1] == "4 completed, 2 cancelled, 1 rejected, 1 failed"


@pytest.mark.parametrize(
    ("trace", "headline"),
    [
        (Trace(""), "Nothing has run yet"),
        (Engine([Ask("a", 0, 50, 1)]).run(), "Nobody got a second token, so nobody waited for one"),
        (Engine([Ask("a", 0, 99_999, 1)], pages=9).run(), "No token has come out"),
        (Engine([Ask("a", 0, 50, 9)]).run(), "The longest wait between two tokens is 5.0 ms"),
    ],
)
def test_small_findings(trace: Trace, headline: str) -> None:
    assert state(trace).headline == headline


def test_several_prompts_and_one_chat() -> None:
    asks = [Ask("chat", 0.0, 500, 60), *(Ask(f"p{i}", 0.05, 3000, 1) for i in range(3))]
    timeline = state(Engine(asks, budget=None).run(), noun="chat")
    assert re.fullmatch(r"Three prompts freeze one chat for \d+ ms", timeline.headline)


def test_a_prompt_that_is_not_long_is_named_by_its_length() -> None:
    asks = [Ask("chat", 0.0, 500, 60), Ask("p", 0.05, 3000, 1)]
    timeline = state(Engine(asks, budget=None).run())
    assert timeline.headline.startswith("One prompt of 3,000 tokens freezes one request for")


def test_three_runs() -> None:
    traces = {f"budget {b}": Engine(freeze_asks(), budget=b).run() for b in (None, 8192, 512)}
    timeline = state(traces, noun="chat")
    assert timeline.headline.startswith("One long prompt freezes three chats")
    assert timeline.subline.startswith("In “budget 512”, the longest wait is")
    svg_checks.check(svg(timeline))


def test_readouts_and_changes(both: Timeline) -> None:
    before, after = both.panels
    assert [r.value for r in before.readouts] == ["3.45 s", "3.44 s", "131 tok/s"]
    assert [r.change for r in before.readouts] == ["", "", ""]
    assert [r.value for r in after.readouts] == ["161 ms", "3.59 s", "131 tok/s"]
    assert [r.change for r in after.readouts] == ["−95 %", "+4 %", "same"]
    assert [r.label for r in after.readouts] == [
        "worst gap of a chat", "first token, long", "output, all four",
    ]  # fmt: skip
    assert (before.note, after.note) == (
        "65,536 tokens of prompt in one step", "65,536 tokens of prompt in 33 steps",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.00 µs"), (8.5e-7, "0.85 µs"), (8.5e-4, "850 µs"), (0.0051, "5.10 ms"),
        (0.154, "154 ms"), (0.9999, "1.00 s"), (3.2, "3.20 s"), (12.34, "12.3 s"),
        (4321.0, "4,321 s"),
    ],
)  # fmt: skip
def test_duration(seconds: float, said: str) -> None:
    assert format.duration(seconds) == said


def test_other_formats() -> None:
    assert format.change(3.2, 0.154) == "−95 %" and format.change(100, 105) == "+5 %"
    assert format.change(1.0, 1.001) == "same" and format.change(1.0, 22.0) == "22×"
    assert format.change(0.0, 0.0) == "same" and format.change(0.0, 1.0) == ""
    assert (
        format.number_of(1, "chat") == "one chat" and format.number_of(14, "query") == "14 queries"
    )
    assert format.number_of(0, "batch") == "no batches" and format.count(65536) == "65,536"


def test_text_is_measured_on_the_safe_side() -> None:
    for said in (
        "worst gap 3.20 s",
        "65,536 tokens of prompt",
        "[63,395, 65,440)",
        "first – “x” × … −’µ·",
    ):
        for bold in (False, True):
            real = svg_checks.width(said, 12, bold)
            assert real - 0.5 <= text.width(said, 12, bold=bold) <= real + 2.5
    assert text.fit("hello world", 1000, 12) == "hello world"
    cut = text.fit("hello world, this is long", 80, 12)
    assert cut.endswith("…") and text.width(cut, 12) <= 80
    assert text.fit("漢字漢字漢字", 40, 12) == "漢字…"[:3]
    assert text.wrap("aa bb cc", 40, 12) == ["aa bb", "cc"] and text.wrap("", 40, 12) == []


# What is drawn.


def test_waiting_is_being_in_no_step(both: Timeline) -> None:
    frozen, chunked = (panel.lanes[0] for panel in both.panels)
    long_waits = [span for span in frozen.waits if span.stop - span.start > 3]
    assert len(long_waits) == 1 and long_waits[0].stop - long_waits[0].start == pytest.approx(
        3.44, abs=0.01
    )
    assert all(span.stop - span.start < 0.1 for span in chunked.waits)


def test_chunks_tile_the_prompt(both: Timeline) -> None:
    whole, chunked = (panel.lanes[-1] for panel in both.panels)
    assert [(c.first, c.last) for c in whole.chunks] == [(0, 65_536)]
    assert whole.bold and not both.panels[0].lanes[0].bold
    assert len(chunked.chunks) == 33
    for left, right in zip(chunked.chunks, chunked.chunks[1:], strict=False):
        assert left.last == right.first and left.stop <= right.start
    assert [note.text.split(":")[0] for note in chunked.notes] == ["chunk 1", "chunk 32"]


def test_bands_and_ticks(both: Timeline) -> None:
    frozen, chunked = (panel.lanes[0] for panel in both.panels)
    assert sum(t.number for t in frozen.tokens) == sum(t.number for t in chunked.tokens) == 210
    assert len([t for t in chunked.tokens if t.number == 1]) >= 25
    assert max(t.number for t in frozen.tokens) > 50


def test_a_preempted_lane(eventful: Timeline) -> None:
    delta = next(lane for lane in eventful.panels[0].lanes if lane.label == "delta")
    assert len(delta.preempted) == 1 and any(chunk.again for chunk in delta.chunks)
    picture = svg(eventful)
    assert re.search(r'class="preempted" fill="url\(#mc-timeline-[0-9a-f]{8}-hatch\)"', picture)


def test_how_lanes_end(eventful: Timeline) -> None:
    lanes = {lane.label: lane for lane in eventful.panels[0].lanes}
    assert lanes["alpha"].ending is Ending.FINISHED and lanes["alpha"].remark == ""
    assert lanes["beta"].ending is Ending.CANCELLED and lanes["beta"].remark == "cancelled"
    assert lanes["delta"].ending is Ending.FAILED and lanes["delta"].remark.startswith("failed: ")
    assert lanes["eta"].ending is Ending.REFUSED and lanes["eta"].arrival is None
    assert lanes["zeta"].chunks == () and lanes["zeta"].first_token is None
    picture = svg(eventful)
    for said in ("cancelled", "refused: The prompt has 90000 tokens.", "preempted", "failed"):
        assert said in picture


def test_the_legend_has_only_what_is_there(both: Timeline) -> None:
    picture = svg(both)
    assert ">waiting<" in picture and ">finish<" in picture
    for absent in (">preempted<", ">cancelled<", ">refused<", ">failed<"):
        assert absent not in picture


def test_unfinished_lanes_have_no_end() -> None:
    timeline = state(Engine(freeze_asks(), budget=2048).run(max_steps=60))
    assert all(lane.end is None and lane.ending is None for lane in timeline.panels[0].lanes)
    assert timeline.sources[-1].endswith("4 unfinished")
    svg_checks.check(svg(timeline))


def test_the_queue_is_drawn_when_there_is_one(both: Timeline, eventful: Timeline) -> None:
    assert Strip.QUEUE not in both.strips and Strip.QUEUE in eventful.strips
    only = state(eventful_trace(), show=(Strip.PAGES,))
    assert only.strips == (Strip.PAGES,)
    assert "in a step" not in svg(only) and "KV pages" in svg(only)
    svg_checks.check(svg(state(eventful_trace(), show=())))


def test_a_window_zooms_and_leaves_the_numbers(both: Timeline) -> None:
    zoomed = state(chunked_trace(), noun="chat", window=(1.5, 3.0))
    assert zoomed.panels[0].readouts[0].value == both.panels[1].readouts[0].value
    assert zoomed.panels[0].gap is None and both.panels[1].gap is not None
    assert zoomed.panels[0].boundaries and not both.panels[1].boundaries
    for lane in zoomed.panels[0].lanes:
        assert all(1.5 <= chunk.start < chunk.stop <= 3.0 for chunk in lane.chunks)
        assert all(1.5 <= t.start <= t.stop <= 3.0 for t in lane.tokens)
        assert lane.arrival is None
    svg_checks.check(svg(zoomed))


def test_a_window_before_and_after_everything() -> None:
    for window in ((-5.0, -1.0), (100.0, 101.0), (0.0, 1e-6), (0.36, 0.36001)):
        svg_checks.check(svg(state(chunked_trace(), window=window)))


def test_selecting_a_step() -> None:
    timeline = state(chunked_trace(), noun="chat", step=80)
    chosen = timeline.selection
    assert chosen is not None
    assert chosen.title.startswith("Step 80 at 3.15 s: 148 ms long, 2,048 of 2,048 tokens")
    assert (
        chosen.lines[0] == "long, 64k: prefill [55,215, 57,260), pages 3,450 to 3,578 of its table"
    )
    assert chosen.lines[1] == "chat A: decode [1,079, 1,080), page 67 of its table"
    picture = svg(timeline)
    assert 'class="picked"' in picture and chosen.lines[0] in picture
    assert chosen.title in summary(timeline)
    svg_checks.check(picture)


def test_a_step_with_many_items_is_cut() -> None:
    trace = Engine([Ask(f"r{i}", 0.0, 50, 20) for i in range(30)]).run()
    busiest = max(trace.steps, key=lambda step: step.num_decodes).step
    lines = state(trace, step=busiest).selection.lines
    assert len(lines) == 12 and lines[-1] == "and 19 more"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"step": 9999}, KeyError, "The run has no step 9999; its steps are 0 to"),
        ({"lanes": ["nobody"]}, KeyError, "No run has a request 'nobody'"),
        ({"window": (2.0, 2.0)}, ValueError, "The window ends at 2.0 s, not after its start"),
    ],
)
def test_mistakes_are_named(options: dict, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        state(chunked_trace(), **options)


def test_no_trace_is_a_mistake_and_an_empty_one_is_not() -> None:
    with pytest.raises(ValueError, match="give at least one"):
        state({})
    svg_checks.check(svg(state(Trace("measured here: Intel Xeon, 2 cores"))))


def test_chosen_lanes_keep_their_order() -> None:
    timeline = state(chunked_trace(), lanes=["long, 64k", "chat B"])
    assert [lane.label for lane in timeline.panels[0].lanes] == ["chat B", "long, 64k"]


def test_a_crowd_shows_forty_and_says_so() -> None:
    timeline = state({"whole": many(60, budget=None), "mixed": many(60, budget=512)})
    for panel in timeline.panels:
        assert len(panel.lanes) == 40 and "20 more requests not drawn" in panel.note
    first, second = ([lane.label for lane in panel.lanes] for panel in timeline.panels)
    assert first == second
    svg_checks.check(svg(timeline))


@pytest.mark.parametrize("number", [1, 2, 6, 7, 16, 17, 40])
def test_any_number_of_lanes(number: int) -> None:
    svg_checks.check(svg(state({"a": many(number, budget=None), "b": many(number, budget=256)})))


def test_thousands_of_steps_stay_small() -> None:
    asks = [Ask("a", 0, 1000, 4100), Ask("b", 5, 8000, 3000), Ask("c", 9, 20_000, 2000)]
    trace = Engine(asks, budget=1024).run()
    assert len(trace.steps) > 4000
    picture = svg(state(trace))
    svg_checks.check(picture, most_elements=300)
    assert len(picture) < 60_000


def test_long_and_odd_names_are_cut_and_escaped() -> None:
    names = [
        "x" * 300,
        "<script>alert('&')</script>",
        "quote \" and ' here",
        "漢字" * 40,
        " ",
        "a\tb",
    ]
    trace = Engine([Ask(name, 0.1 * i, 300, 20) for i, name in enumerate(names)]).run()
    timeline = state({"n" * 200: trace, "<b>": trace}, noun="chat", step=3)
    picture = svg(timeline)
    svg_checks.check(picture)
    assert "<script>" not in picture and "&lt;script&gt;" in picture


def test_tiny_and_huge_durations() -> None:
    for scale in (1e-6, 1e3):
        trace = Trace("scaled")
        request = Request("a", [1] * 40)
        request.number = 0
        trace.add_request(request, 0.0)
        trace.add_event(request, EventKind.ADMITTED, 0.1 * scale)
        for step in range(6):
            item = PlanItem(0, 0, step * 8, step * 8 + 8, step == 4, [1] * 8)
            start = (step + 0.1) * scale
            result = StepResult(step, [], start, start + 0.8 * scale, {}, {})
            plan = StepPlan(step, [item], 0, 8, 8, [], [])
            trace.add_step(plan, result, Occupancy(9, step, 1, 8 * step, 0, 1))
        trace.add_tokens([0], 4, 4.9 * scale)
        trace.add_tokens([0], 5, 5.9 * scale)
        svg_checks.check(svg(state(trace, step=2)))


def test_a_clock_with_an_offset_draws_the_same() -> None:
    """Real clocks do not start at 0: the axis does."""
    moved = Trace("moved")
    request = Request("a", [1] * 40, arrival=5000.25)
    request.number = 7
    moved.add_request(request, 5000.25)
    moved.add_event(request, EventKind.ADMITTED, 5000.5)
    plan = StepPlan(0, [PlanItem(7, 0, 0, 40, True, [1] * 40)], 0, 40, 64, [], [])
    moved.add_step(plan, StepResult(0, [1], 5000.5, 5001.25, {}, {}), Occupancy(9, 3, 0, 40, 0, 1))
    moved.add_tokens([7], 0, 5001.25)
    request.finish_reason = FinishReason.LENGTH
    moved.add_event(request, EventKind.FINISHED, 5001.25)
    timeline = state(moved)
    assert (timeline.start, timeline.stop) == (0.0, 1.0)
    assert timeline.panels[0].lanes[0].chunks[0][:2] == (0.25, 1.0)


# The page it is on.


def test_pure_and_scoped(both: Timeline, eventful: Timeline) -> None:
    assert svg(both) == svg(both)
    ids = [re.search(r' id="([^"]+)"', svg(one)).group(1) for one in (both, eventful)]
    assert ids[0] != ids[1]
    assert svg(both, id="mine").count("#mine ") > 10


def test_the_theme_decides_inside_and_the_file_brings_its_own(both: Timeline) -> None:
    inside, alone = svg(both, id="a"), svg(both, id="a", standalone=True)
    assert "var(--jp-ui-font-color1,#222)" in inside and "var(--jp-layout-color0,#fff)" in inside
    assert "prefers-color-scheme" not in inside
    assert "@media(prefers-color-scheme:dark)" in alone and "--jp-layout-color0:#111" in alone
    svg_checks.check(alone)


def test_named_for_screen_readers(both: Timeline) -> None:
    root = svg_checks.parse(svg(both))
    assert root.attrib["role"] == "img" and root.attrib["aria-label"] == summary(both)


def test_width_is_700_and_the_plot_is_inside(both: Timeline) -> None:
    page = svg_checks.view_box(svg_checks.parse(svg(both)))
    assert page.right == 700 and 0 < LEFT < RIGHT < 700


@pytest.mark.parametrize(
    ("colour", "paper", "least"),
    [
        ("#222222", "#ffffff", 4.5), ("#e0e0e0", "#111111", 4.5),  # ink
        ("#ffffff", theme.PREFILL, 4.5), (theme.ON_DECODE, theme.DECODE, 4.5),  # text on colour
        (theme.PREFILL, "#ffffff", 3), (theme.PREFILL, "#111111", 3),
        (theme.PREEMPTED, "#ffffff", 3), (theme.PREEMPTED, "#111111", 3),
        (theme.DECODE_EDGE, "#ffffff", 3), (theme.DECODE, "#111111", 3),  # orange has a dark edge
        (theme.SHARED, "#ffffff", 3), (theme.SHARED, "#111111", 3),
        ("#616161", "#ffffff", 4.5), ("#a6a6a6", "#111111", 4.5),  # ink at 72 %, as it blends
    ],
)  # fmt: skip
def test_contrast_of_the_palette(colour: str, paper: str, least: float) -> None:
    assert svg_checks.contrast(colour, paper) >= least


def test_every_fixed_colour_of_the_picture_is_in_the_theme(eventful: Timeline) -> None:
    body = svg(eventful).split("</style>")[1]
    assert set(re.findall(r"#[0-9A-Fa-f]{6}\b", body)) <= {theme.PREEMPTED}


@pytest.mark.parametrize(
    ("least", "step"), [(0.9, 1.0), (1.1, 2.0), (3e-4, 5e-4), (6.0, 10.0), (0.05, 0.05)]
)
def test_round_steps(least: float, step: float) -> None:
    assert round_step(least) == pytest.approx(step)


@pytest.mark.parametrize(
    "window", [(0.0, 4.1), (1.5, 3.0), (0.0, 0.012), (3.4121, 3.4129), (0.0, 900.0)]
)
def test_axis_labels_tell_their_times_apart(window: tuple[float, float]) -> None:
    scale = Scale(state(chunked_trace(), window=window))
    labels = [label for _, label in scale.ticks()]
    assert len(set(labels)) == len(labels) >= 3


# Whatever happens.

names = st.one_of(
    st.text(max_size=12), st.sampled_from(["chat A", "a" * 60, "long, 64k", "request-1234567"])
)
requests = st.builds(
    Ask,
    id=names,
    arrival=st.one_of(st.just(0.0), st.floats(0, 0.4)),
    prompt=st.sampled_from([1, 16, 200, 900, 3000, 9000]),
    output=st.integers(1, 60),
    cached=st.just(0),
    cancel=st.sampled_from([inf, inf, 0.02, 0.2]),
    error_after=st.sampled_from([None, None, None, 3]),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    asks=st.lists(requests, max_size=14),
    budgets=st.lists(st.sampled_from([None, 16, 128, 2048]), min_size=1, max_size=3),
    pages=st.sampled_from([64, 300, 5000]),
    titles=st.lists(st.text(max_size=40), min_size=3, max_size=3, unique=True),
    zoom=st.one_of(st.none(), st.tuples(st.floats(-0.1, 0.5), st.floats(1e-4, 1.0))),
    pick=st.booleans(),
    noun=st.sampled_from(["request", "chat", "extraordinarily long noun"]),
)
def test_no_eye_would_complain(asks, budgets, pages, titles, zoom, pick, noun) -> None:
    traces = {
        title: Engine(asks, budget=budget, pages=pages).run(max_steps=400)
        for title, budget in zip(titles, budgets, strict=False)
    }
    last = list(traces.values())[-1]
    step = last.steps[len(last.steps) // 2].step if pick and len(last.steps) else None
    window = None if zoom is None else (zoom[0], zoom[0] + zoom[1])
    timeline = state(traces, noun=noun, window=window, step=step)
    svg_checks.check(svg(timeline, standalone=pick))
    assert "\n" not in summary(timeline)
