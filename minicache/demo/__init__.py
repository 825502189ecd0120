"""`minicache demo`: three people chat, a fourth pastes a long document, twice."""

from __future__ import annotations

from minicache.demo.options import Options
from minicache.demo.show import show

__all__ = ["Options", "show"]
