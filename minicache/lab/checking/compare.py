"""Expected against got: the type first, then shape, dtype and values, each named as what it is."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from minicache.lab.checking.describe import dtype_name, is_tensor, number
from minicache.lab.checking.outcome import Fault


class Difference(NamedTuple):
    """What is wrong with a result, and where."""

    fault: Fault
    sentence: str
    where: str = ""


def difference(expected: Any, got: Any, rtol: float, atol: float) -> Difference | None:
    """What is wrong with `got` first, or None. Floats agree within atol + rtol · |expected|."""
    if is_tensor(expected):
        return _tensors(expected, got, rtol, atol)
    if isinstance(expected, tuple | list):
        return _sequences(expected, got, rtol, atol)
    if isinstance(expected, float):
        return _floats(expected, got, rtol, atol)
    if type(got) is not type(expected):
        return _wrong_type(expected, got)
    return _unequal(expected, got) if got != expected else None


def _wrong_type(expected: Any, got: Any) -> Difference:
    want, have = type(expected).__name__, type(got).__name__
    if got is None:
        return Difference(Fault.TYPE, f"It returned None, not a {want}: is the `return` missing?")
    return Difference(Fault.TYPE, f"It returned a {have}, but a {want} is expected.")


def _floats(expected: float, got: Any, rtol: float, atol: float) -> Difference | None:
    if isinstance(got, bool) or not isinstance(got, float | int):
        return _wrong_type(expected, got)
    if math.isclose(expected, got, rel_tol=rtol, abs_tol=atol):
        return None
    return _unequal(expected, float(got))


def _unequal(expected: Any, got: Any) -> Difference:
    """Two values that differ; of numbers also the factor between them, which often is a clue."""
    numbers = isinstance(expected, int | float) and not isinstance(expected, bool)
    if numbers and expected and math.isfinite(got):
        sentence = f"{number(got)} is {number(float(got / expected))} times the right value."
        return Difference(Fault.VALUES, sentence)
    return Difference(Fault.VALUES, "The two are not equal.")


def _sequences(expected: Any, got: Any, rtol: float, atol: float) -> Difference | None:
    if not isinstance(got, tuple | list) or isinstance(got, tuple) != isinstance(expected, tuple):
        return _wrong_type(expected, got)
    for index, (want, have) in enumerate(zip(expected, got, strict=False)):
        found = difference(want, have, rtol, atol)
        if found:
            label = getattr(expected, "_fields", range(len(expected)))[index]
            return found._replace(where=f"in [{label}] {found.where}".strip())
    if len(got) != len(expected):
        sentence = f"It returned {len(got)} items, but {len(expected)} are expected."
        return Difference(Fault.SHAPE, sentence)
    return None


def _tensors(expected: Any, got: Any, rtol: float, atol: float) -> Difference | None:
    if not is_tensor(got):
        return _wrong_type(expected, got)
    if got.shape != expected.shape:
        return _wrong_shape(tuple(expected.shape), tuple(got.shape))
    if got.dtype != expected.dtype:
        want, have = dtype_name(expected), dtype_name(got)
        return Difference(Fault.DTYPE, f"The dtype is {have}, but {want} is expected.")
    wrong = _wrong_elements(expected, got, rtol, atol)
    return _wrong_values(expected, got, wrong) if bool(wrong.any()) else None


def _wrong_shape(expected: tuple[int, ...], got: tuple[int, ...]) -> Difference:
    sentence = f"The shape is {got}, but {expected} is expected."
    if len(got) == len(expected) and sorted(got) == sorted(expected):
        sentence += " The same sizes in another order: a transpose is missing, or one too many."
    elif math.prod(got) == math.prod(expected):
        sentence += " The number of elements is right: only the dimensions are cut differently."
    return Difference(Fault.SHAPE, sentence)


def _wrong_elements(expected: Any, got: Any, rtol: float, atol: float) -> Any:
    """A boolean tensor: True where they differ. NaN equals NaN, inf equals inf of its sign."""
    if not expected.is_floating_point():
        return got != expected
    want, have = expected.double(), got.double()
    close = (want - have).abs() <= atol + rtol * want.abs()
    return ~(close | (want == have) | (want.isnan() & have.isnan()))


def _wrong_values(expected: Any, got: Any, wrong: Any) -> Difference:
    count, total = int(wrong.sum()), wrong.numel()
    sentence = f"{count:,} of {total:,} elements {'is' if count == 1 else 'are'} wrong."
    if got.is_floating_point():
        sentence += _pattern(expected.double(), got.double(), wrong)
    places = wrong.nonzero()[:3].tolist()
    return Difference(Fault.VALUES, sentence, "\n".join(_place(expected, got, p) for p in places))


def _place(expected: Any, got: Any, place: list[int]) -> str:
    index = tuple(place)
    return f"at {place}: expected {number(expected[index].item())}, got {number(got[index].item())}"


def _pattern(expected: Any, got: Any, wrong: Any) -> str:
    """A regularity that points at a cause: NaNs, one common factor, one common offset."""
    bad = int((got.isnan() & ~expected.isnan()).sum())
    if bad:
        return f" {bad:,} of them are NaN."
    want, have = expected[wrong], got[wrong]
    if want.numel() < 2 or not bool((want.isfinite() & have.isfinite() & (want != 0)).all()):
        return ""
    ratio = have / want
    if bool(((ratio - ratio[0]).abs() < 1e-4 * ratio[0].abs()).all()):
        return f" Each wrong one is {number(float(ratio[0]))} times the right value."
    return ""
