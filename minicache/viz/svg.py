"""Writing SVG by hand: a list of elements with short numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

from minicache.viz.theme import style

Attribute = str | float


def short(value: float) -> str:
    """A number with at most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]+")


def clean(text: str) -> str:
    """`text` on one line, without the characters that XML forbids."""
    return _UNPRINTABLE.sub(" ", text)


def _escaped(text: str, *, quote: bool = False) -> str:
    return escape(clean(text), quote=quote)


def box(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as part of a path, so that many cost one element."""
    return f"M{short(x)} {short(y)}h{short(width)}v{short(height)}h{short(-width)}z"


class Drawing:
    """Elements of an SVG, in the order in which they are painted."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, text: str, size: float, css: str = "t", *,
        anchor: str = "start", bold: bool = False,
    ) -> None:  # fmt: skip
        """A line of text with its baseline at y. `anchor` is start, middle or end."""
        more = "" if anchor == "start" else f' text-anchor="{anchor}"'
        more += ' font-weight="700"' if bold else ""
        self.parts.append(
            f'<text x="{short(x)}" y="{short(y)}" font-size="{short(size)}" class="{css}"{more}>'
            f"{_escaped(text)}</text>"
        )

    def path(self, data: str | Iterable[str], css: str, **attributes: Attribute) -> None:
        """A path; nothing is drawn for no data. Underscores in attribute names become hyphens."""
        joined = data if isinstance(data, str) else "".join(data)
        if joined:
            self.parts.append(f'<path d="{joined}" class="{css}"{_attributes(attributes)}/>')

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, **attributes: Attribute
    ) -> None:
        """A rectangle."""
        size = {"x": x, "y": y, "width": width, "height": height}
        self.parts.append(f'<rect{_attributes(size)} class="{css}"{_attributes(attributes)}/>')

    def open(self, title: str) -> None:
        """Start a group that shows `title` under the pointer. Close it with `close`."""
        self.parts.append(f"<g><title>{_escaped(title)}</title>")

    def close(self) -> None:
        """End the group."""
        self.parts.append("</g>")


def document(
    drawing: Drawing, *, id: str, width: float, height: float, label: str,
    standalone: bool, defs: str = "",
) -> str:  # fmt: skip
    """The whole SVG, on paper of the theme's colour, with `label` for screen readers.

    `id` scopes its style: pictures with different ids can share a page.
    """
    css = style(id, standalone=standalone)
    size = f'viewBox="0 0 {short(width)} {short(height)}" width="{short(width)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{escape(id)}" {size} '
        f'height="{short(height)}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{_escaped(label, quote=True)}"><style>{css}</style>{defs}'
        f'<rect width="{short(width)}" height="{short(height)}" class="paper"/>'
        + "\n".join(drawing.parts)
        + "</svg>"
    )


def _attributes(values: Mapping[str, Attribute]) -> str:
    return "".join(
        f' {name.replace("_", "-")}="{value if isinstance(value, str) else short(value)}"'
        for name, value in values.items()
    )
