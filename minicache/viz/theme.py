"""The course's colours and type, for JupyterLab's light and dark themes and for a file on its own.

Okabe and Ito's palette, safe for colour-blind readers; every colour has a second cue beside it.
"""

from __future__ import annotations

PREFILL = "#0072B2"
DECODE = "#E69F00"
DECODE_EDGE = "#5C4000"
SHARED = "#009E73"
PREEMPTED = "#D55E00"
COMBINE = "#CC79A7"
ON_DECODE = "#222"
INK = "var(--jp-ui-font-color1,#222)"
PAPER = "var(--jp-layout-color0,#fff)"
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,sans-serif"

_RULES = f"""
text{{font-family:{FONT};font-variant-numeric:tabular-nums}}
.t{{fill:{INK}}}
.m{{fill:{INK};fill-opacity:.72}}
.w{{fill:#fff}}
.paper{{fill:{PAPER}}}
.line{{fill:none;stroke:{INK}}}
.mark{{fill:{PAPER};stroke:{INK}}}
.wait{{fill:none;stroke:{INK};stroke-opacity:.55}}
.grid{{fill:none;stroke:{INK};stroke-opacity:.13}}
.area{{fill:{INK};fill-opacity:.16;stroke:{INK};stroke-opacity:.6}}
.faint{{fill:{INK};fill-opacity:.06;stroke:{INK};stroke-opacity:.35}}
.prefill{{fill:{PREFILL};stroke:{PAPER};stroke-width:.8}}
.picked{{fill:{INK};fill-opacity:.1;stroke:{INK};stroke-opacity:.5}}
.solid{{fill:{PREFILL}}}
.decode{{fill:{DECODE};stroke:{DECODE_EDGE};stroke-width:.8}}
.bar{{fill:{DECODE}}}
.preempted{{stroke:{PREEMPTED}}}
.bad{{fill:{PAPER};stroke:{PREEMPTED}}}
"""

_OWN_THEME = """
#{id}{{color-scheme:light dark;--jp-ui-font-color1:#222;--jp-layout-color0:#fff;background:#fff}}
@media(prefers-color-scheme:dark){{
#{id}{{--jp-ui-font-color1:#e0e0e0;--jp-layout-color0:#111;background:#111}}}}
"""


def style(id: str, *, standalone: bool) -> str:
    """CSS for the SVG with this id, and for no other on the page.

    Inside JupyterLab the theme's variables decide. A `standalone` file brings its own, light or
    dark as the reader's system asks.
    """
    rules = "".join(f"#{id} {rule}" for rule in _RULES.strip().split("\n"))
    own = _OWN_THEME.format(id=id).replace("\n", "") if standalone else ""
    return own + rules
