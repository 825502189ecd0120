"""Automatic checks of a picture: what an eye would complain about.

`check(svg)` raises with a list of faults. Text is measured in DejaVu Sans, the widest of the usual
interface fonts, with the fonts that matplotlib brings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import matplotlib
from matplotlib.ft2font import FT2Font

SVG = "{http://www.w3.org/2000/svg}"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
COLOURED = {"prefill", "solid", "decode", "bar", "preempted"}


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    name: str

    def shared(self, other: Box) -> tuple[float, float]:
        """Width and height of what two boxes have in common; negative when they are apart."""
        return (
            min(self.right, other.right) - max(self.left, other.left),
            min(self.bottom, other.bottom) - max(self.top, other.top),
        )

    def inside(self, other: Box, slack: float = 0.5) -> bool:
        return (
            self.left >= other.left - slack
            and self.right <= other.right + slack
            and self.top >= other.top - slack
            and self.bottom <= other.bottom + slack
        )


@cache
def _font(bold: bool) -> FT2Font:
    font = FT2Font(str(FONTS / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")))
    font.set_size(100, 72)
    return font


@cache
def _advance(character: str, bold: bool) -> float:
    """Width of a character in ems; a character that the font lacks takes one em."""
    font = _font(bold)
    if not font.get_char_index(ord(character)):
        return 1.0
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / 100


def width(text: str, size: float, bold: bool) -> float:
    return size * sum(_advance(character, bold) for character in text)


def parse(svg: str) -> ElementTree.Element:
    """The root element. Raises `ParseError` when the text is not well-formed XML."""
    return ElementTree.fromstring(svg)


def elements(root: ElementTree.Element) -> list[ElementTree.Element]:
    return list(root.iter())


def view_box(root: ElementTree.Element) -> Box:
    x, y, wide, high = map(float, root.attrib["viewBox"].split())
    return Box(x, y, x + wide, y + high, "the picture")


def texts(root: ElementTree.Element) -> list[tuple[Box, str]]:
    """Every text with the box of its letters, and its class."""
    found = []
    for element in root.iter(f"{SVG}text"):
        words = "".join(element.itertext())
        size = float(element.attrib["font-size"])
        bold = element.get("font-weight") == "700"
        wide = width(words, size, bold)
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[
            element.get("text-anchor", "start")
        ]
        box = Box(left, y - 0.73 * size, left + wide, y + 0.1 * size, words)
        found.append((box, element.get("class", "")))
    return found


_NUMBER = r"(-?\d+\.?\d*)"
_BOX = re.compile(rf"M{_NUMBER} {_NUMBER}h{_NUMBER}v{_NUMBER}h-{_NUMBER}z")


def coloured_boxes(root: ElementTree.Element) -> list[Box]:
    """The filled rectangles of paths in one of the course's colours."""
    return [
        Box(x, y, x + wide, y + high, css)
        for element in root.iter(f"{SVG}path")
        if (css := element.get("class", "")) in COLOURED
        for x, y, wide, high, _ in (
            map(float, m.groups()) for m in _BOX.finditer(element.attrib["d"])
        )
    ]


def overlapping_texts(root: ElementTree.Element, apart: float = 3) -> Iterator[str]:
    """Texts that lie on each other, or run into each other on one line."""
    for (one, _), (other, _) in combinations(texts(root), 2):
        across, down = one.shared(other)
        if across > -apart and down > 1:
            yield f"{one.name!r} and {other.name!r} overlap by {across:.0f} × {down:.0f} px"


def clipped_texts(root: ElementTree.Element, margin: float = 4) -> Iterator[str]:
    """Texts that reach out of the picture, or so close to its edge that it hurts."""
    page = view_box(root)
    for box, _ in texts(root):
        if not box.inside(page, slack=-margin):
            yield f"{box.name!r} reaches out of the picture: {box[:4]}"


def small_texts(root: ElementTree.Element, least: float = 11) -> Iterator[str]:
    for element in root.iter(f"{SVG}text"):
        if float(element.attrib["font-size"]) < least:
            yield f"{''.join(element.itertext())!r} is under {least} px"


def texts_on_colour(root: ElementTree.Element) -> Iterator[str]:
    """White text must lie on a coloured box, and no other text may touch one."""
    boxes = coloured_boxes(root)
    for text, css in texts(root):
        if css == "w":
            if not any(text.inside(box, slack=1) for box in boxes):
                yield f"white text {text.name!r} is not on a coloured box"
        else:
            for box in boxes:
                across, down = text.shared(box)
                if across > 1 and down > 1:
                    yield f"{text.name!r} lies on a {box.name} box"
                    break


def unscoped_rules(root: ElementTree.Element) -> Iterator[str]:
    """Every rule of the style must name the picture's id: several pictures share a page."""
    style = "".join(root.find(f"{SVG}style").itertext())
    plain = re.sub(r"@media\([^)]*\)\{((?:[^{}]*\{[^{}]*\})*)\}", r"\1", style)
    for selector in re.findall(r"([^{}]+)\{[^{}]*\}", plain):
        if not selector.strip().startswith(f"#{root.attrib['id']}"):
            yield f"the style rule {selector!r} reaches beyond this picture"


def missing_names(root: ElementTree.Element) -> Iterator[str]:
    if root.get("role") != "img" or not root.get("aria-label"):
        yield "the picture has no role and name for a screen reader"


def faults(svg: str, most_elements: int = 2000) -> list[str]:
    """Everything that is wrong with a picture, in words."""
    root = parse(svg)
    found = [
        *overlapping_texts(root),
        *clipped_texts(root),
        *small_texts(root),
        *texts_on_colour(root),
        *unscoped_rules(root),
        *missing_names(root),
    ]
    if (number := len(elements(root))) > most_elements:
        found.append(f"{number} elements are more than {most_elements}")
    for element in elements(root):
        geometry = " ".join(element.get(name, "") for name in ("d", "x", "y", "width", "height"))
        if re.search("nan|inf", geometry):
            found.append("a number is not finite")
    return found


def check(svg: str, most_elements: int = 2000) -> None:
    """Raises `AssertionError` with the list of faults."""
    found = faults(svg, most_elements)
    assert not found, "\n".join(found)


def luminance(colour: str) -> float:
    """Relative luminance of `#rgb` or `#rrggbb`, as WCAG 2 defines it."""
    digits = colour.lstrip("#")
    digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours: text wants 4.5, shapes 3."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
