"""The scheduling timeline: what each request did in every step, at true width.

`state(trace)` reads one or several traces, `svg(state)` draws them, `summary(state)` says it in one
line of text.
"""

from minicache.viz.timeline.draw import summary, svg
from minicache.viz.timeline.model import Strip, Timeline
from minicache.viz.timeline.state import state

__all__ = ["Strip", "Timeline", "state", "summary", "svg"]
