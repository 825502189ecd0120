"""The timeline's controls, without a browser: set a value, look at the SVG."""

from __future__ import annotations

import subprocess
import sys

import pytest
import svg_checks
from synthetic_traces import Ask, Engine, chunked_trace, eventful_trace, frozen_trace

from minicache.trace import Trace
from minicache.viz.timeline import summary
from minicache.viz.timeline_widget import ZOOMS, TimelineWidget


@pytest.fixture
def widget() -> TimelineWidget:
    traces = {"whole prompts": frozen_trace(), "chunks": chunked_trace()}
    return TimelineWidget(traces, baseline="whole prompts", noun="chat")


def test_importing_it_needs_no_widgets() -> None:
    code = "import sys, minicache.viz.timeline_widget; print('ipywidgets' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_the_first_view_is_the_comparison_at_the_worst_gap(widget: TimelineWidget) -> None:
    assert widget.run.value == "chunks" and widget.zoom.value == 1
    assert [panel.title for panel in widget.state.panels] == ["whole prompts", "chunks"]
    assert widget.state.headline == "One long prompt freezes three chats for 3.4 s"
    longest = max(widget._runs["chunks"].trace.steps, key=lambda s: s.t_end - s.t_start)
    assert widget.step.value == longest.step
    assert f"Step {longest.step} at " in widget.picture.value
    svg_checks.check(widget.picture.value)


def test_choosing_a_run_redraws(widget: TimelineWidget) -> None:
    before = widget.picture.value
    widget.run.value = "whole prompts"
    assert widget.picture.value != before
    assert len(widget.state.panels) == 1
    assert widget.step.max == len(widget._runs["whole prompts"].trace.steps) - 1
    assert "65,536 of 131,072 tokens" in widget.state.selection.title
    widget.run.value = "chunks"
    assert widget.picture.value == before


def test_all_runs_keep_one_time_axis(widget: TimelineWidget) -> None:
    end = widget.state.stop
    widget.run.value = "whole prompts"
    assert widget.state.stop == end


def test_step_slider_and_buttons_move_together(widget: TimelineWidget) -> None:
    widget.step.value = 10
    assert widget.slider.value == 10 and "Step 10 at " in widget.picture.value
    widget.slider.value = 11
    assert widget.step.value == 11 and "Step 11 at " in widget.picture.value
    widget.forward.click()
    assert widget.step.value == 12
    widget.back.click()
    widget.back.click()
    assert widget.step.value == 10
    widget.step.value = 0
    widget.back.click()
    assert widget.step.value == 0
    widget.step.value = widget.step.max
    widget.forward.click()
    assert widget.step.value == widget.step.max


def test_zoom_is_around_the_step_and_inside_the_run(widget: TimelineWidget) -> None:
    whole = widget.state.stop - widget.state.start
    for step in (0, 80, widget.step.max):
        widget.step.value = step
        for zoom in ZOOMS:
            widget.zoom.value = zoom
            shown = widget.state
            assert shown.stop - shown.start == pytest.approx(whole / zoom)
            assert -1e-9 <= shown.start and shown.stop <= whole + 1e-9
            middle = (shown.selection.start + shown.selection.stop) / 2
            assert shown.start <= middle <= shown.stop
            svg_checks.check(widget.picture.value)


def test_reset_is_the_first_view(widget: TimelineWidget) -> None:
    first = widget.picture.value
    widget.run.value = "whole prompts"
    widget.zoom.value = 16
    widget.step.value = 3
    assert widget.picture.value != first
    widget.reset.click()
    assert widget.picture.value == first


def test_what_is_shown_follows_from_the_controls_alone(widget: TimelineWidget) -> None:
    widget.zoom.value, widget.step.value = 4, 50
    one = widget.picture.value
    for step in (51, 7, 50):
        widget.step.value = step
    assert widget.picture.value == one


def test_readers_without_a_kernel_see_the_picture(widget: TimelineWidget) -> None:
    bundle = widget._repr_mimebundle_()
    assert bundle["text/plain"] == summary(widget.state) and "\n" not in bundle["text/plain"]
    assert "prefers-color-scheme" in bundle["image/svg+xml"]
    svg_checks.check(bundle["image/svg+xml"])
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["image/svg+xml"] == widget._repr_mimebundle_()["image/svg+xml"]


def test_steps_of_runs_of_different_length() -> None:
    traces = {f"{n} steps": Engine([Ask("a", 0.0, 100, n)]).run() for n in (3, 40, 7, 200, 5)}
    widget = TimelineWidget(traces)
    for name in (*traces, *reversed(traces)):
        widget.run.value = name
        assert widget.step.max == widget.slider.max == len(traces[name].steps) - 1
        assert 0 <= widget.step.value <= widget.step.max
        svg_checks.check(widget.picture.value)


def test_steps_need_not_start_at_zero() -> None:
    trace = chunked_trace()
    for row in range(len(trace.steps)):
        trace.steps.set(row, "step", trace.steps[row].step + 1000)
    for row in range(len(trace.items)):
        trace.items.set(row, "step", trace.items[row].step + 1000)
    widget = TimelineWidget({"late": trace, "other": eventful_trace()})
    widget.run.value = "late"
    assert widget.step.min == 1000 and widget.step.value >= 1000
    widget.run.value = "other"
    assert widget.step.min == 0 and widget.step.max < 1000
    widget.run.value = "late"
    assert widget.slider.min == 1000 and "Step 1" in widget.picture.value


def test_an_empty_trace_has_nothing_to_pick() -> None:
    widget = TimelineWidget(Trace("measured here"))
    assert widget.step.disabled and widget.slider.disabled
    assert widget.state.selection is None
    widget.zoom.value = 64
    widget.forward.click()
    svg_checks.check(widget.picture.value)


def test_one_trace_has_no_choice_of_runs() -> None:
    widget = TimelineWidget(chunked_trace())
    assert widget.run not in widget.box.children[0].children
    assert len(widget.state.panels) == 1


def test_every_control_has_a_name_for_a_screen_reader(widget: TimelineWidget) -> None:
    for control in (
        widget.run,
        widget.step,
        widget.zoom,
        widget.back,
        widget.forward,
        widget.reset,
    ):
        assert control.description


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="give at least one"):
        TimelineWidget({})
    with pytest.raises(KeyError, match="There is no trace 'b'; choose from a"):
        TimelineWidget({"a": Trace("")}, baseline="b")
