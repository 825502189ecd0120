"""A case: inputs with a name, and what should come of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Inputs = Mapping[str, Any]


def call_in_order(function: Callable[..., Any], inputs: Inputs) -> Any:
    """Call with the inputs in their order: a learner may rename parameters."""
    return function(*inputs.values())


@dataclass(frozen=True, slots=True)
class Case:
    """One named case of a check. `inputs` makes fresh inputs each time it is called."""

    name: str
    about: str
    """One sentence on what this case is about; shown when it fails."""
    inputs: Callable[[], Inputs]
    expected: Callable[..., Any] | None = None
    """From the inputs, in order, to the right answer; None: the reference is run."""
    call: Callable[[Callable[..., Any], Inputs], Any] = call_in_order
    """How the function is used, where that is more than a call."""
    rtol: float = 1e-5
    atol: float = 1e-6
