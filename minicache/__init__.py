"""minicache: a course on long-context LLM serving, and the engine it builds.

`import minicache` is light: names are resolved when they are first used, so that no torch is loaded
for a look at the version, and no Triton on a machine that has none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minicache.llm import LLM
    from minicache.request import FinishReason, RequestRefused, SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "FinishReason", "RequestRefused", "SamplingParams", "__version__"]

_HOME = {
    "LLM": "minicache.llm",
    "FinishReason": "minicache.request",
    "RequestRefused": "minicache.request",
    "SamplingParams": "minicache.request",
}


def __getattr__(name: str) -> object:
    """Import a public name from its room when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'minicache' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
