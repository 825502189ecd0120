"""The course's own code: what lessons call. It needs no torch until something is computed.

from minicache import lab

lab.environment()                    what this machine is, and whose timings you will see
softmax = lab.check(softmax)         check your function; go on with it, or with the reference
softmax = lab.use("softmax")         yours from an earlier lesson, else the reference
lab.hint("softmax")                  a nudge; lab.hint("softmax", 2) says more
lab.predict("gap", guess=..., unit="s", question="…")     write a number down first
lab.reveal("gap", measured=3.2)                           then see it beside the measured one
lab.progress()                       which exercises are done
lab.model(), lab.engine()            the finished model and engine, as black boxes
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minicache.lab.black_boxes import document, engine, model
    from minicache.lab.checks import check, hint, reset, use
    from minicache.lab.machine import ceilings
    from minicache.lab.predictions import predict, reveal
    from minicache.lab.standing import progress
    from minicache.lab.surroundings import environment

__all__ = [
    "ceilings",
    "check",
    "document",
    "engine",
    "environment",
    "hint",
    "model",
    "predict",
    "progress",
    "reset",
    "reveal",
    "use",
]

_HOME = {
    "ceilings": "machine",
    "check": "checks",
    "document": "black_boxes",
    "engine": "black_boxes",
    "environment": "surroundings",
    "hint": "checks",
    "model": "black_boxes",
    "predict": "predictions",
    "progress": "standing",
    "reset": "checks",
    "reveal": "predictions",
    "use": "checks",
}


def __getattr__(name: str) -> object:
    """Import a public name from its room when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'minicache.lab' has no attribute {name!r}")
    return getattr(import_module(f"minicache.lab.{_HOME[name]}"), name)
