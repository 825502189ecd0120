"""A recording: one JSON file a family of measurements, written part by part."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Recording:
    """`about` says where and how; `parts` maps a part's name to its measurements.

    A part that is in the file already is not measured again, unless it comes from another device or
    another version of the software: then the file is begun anew.
    """

    path: Path
    about: dict[str, str]
    parts: dict[str, Any]

    @classmethod
    def open(cls, path: Path, about: Mapping[str, str]) -> Recording:
        """Continue `path` if it was made here, else begin it anew."""
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        same = ("device", "torch", "triton")
        if any(found.get("about", {}).get(key) != about.get(key) for key in same):
            found = {}
        return cls(path, dict(about), found.get("parts", {}))

    def measure(self, name: str, part: Callable[[], Any]) -> bool:
        """Measure part `name` and save the file, unless it is there. Whether it measured."""
        if name in self.parts:
            return False
        self.parts[name] = part()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"about": self.about, "parts": self.parts}, separators=(",", ":"))
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(text.replace('},"', '},\n"') + "\n")
        unfinished.replace(self.path)  # a reader never sees half a file
        return True
