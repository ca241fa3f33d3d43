"""Checks of the values in the fields of a spec."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value, suggestion

T = TypeVar("T")


def check_whole(what: str, value: Any, least: int = 1, *, most: int | None = None) -> None:
    """Raise `SpecError` unless `value` is a whole number of at least `least`, and at most `most` if passed."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not good or (most is not None and value > most):
        reach = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise SpecError(f"{what} must be a whole number {reach}, got {format_value(value)}")


def check_number(what: str, value: Any, *, above: float = 0.0) -> None:
    """Raise `SpecError` unless `value` is a finite number above `above`."""
    try:
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > above
    except OverflowError:
        good = False
    if not good:
        raise SpecError(
            f"{what} must be a finite number above {above:g}, got {format_value(value)}",
            hint=f"for example {above + 1.5:g}",
        )


def as_number(what: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a finite number between bounds as a float, -0 as 0; raise `SpecError` for other values."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value) + 0.0
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        ends = [f"from {least:g}"] * (least > -math.inf) + [f"to {most:g}"] * (most < math.inf)
        raise SpecError(f"{what} must be a finite number {' '.join(ends)}".rstrip() + f", got {format_value(value)}")
    return number


def check_text(what: str, value: Any) -> None:
    """Raise `SpecError` unless `value` is a string that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise SpecError(f"{what} must be a string, got {format_value(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SpecError(f"{what} must be valid Unicode, got half of a surrogate pair") from None


def check_choice(what: str, value: Any, of: Iterable[str]) -> None:
    """Raise `SpecError`, with the closest match as a hint, unless `value` is one of some words."""
    known = list(of)
    if not isinstance(value, str) or value not in known:
        raise SpecError(f"{what}: unknown {format_value(value)}", hint=suggestion(value, known))


def check_flag(what: str, value: Any) -> None:
    """Raise `SpecError` unless `value` is true or false."""
    if not isinstance(value, bool):
        raise SpecError(f"{what} must be true or false, got {format_value(value)}")


def tuple_of(what: str, values: Any, kind: type[T] | tuple[type[T], ...]) -> tuple[T, ...]:
    """Return a list or tuple as a tuple; raise `SpecError` unless all members are of a type in `kind`."""
    if not isinstance(values, list | tuple):
        raise SpecError(f"{what} must be a list, got {format_value(values)}")
    for value in values:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise SpecError(f"{what} must be a list of {kinds}, got an element {format_value(value)}")
        if isinstance(value, str):
            check_text(what, value)
    return tuple(values)


def whole_numbers(what: str, values: Any) -> tuple[int, ...]:
    """Return a list, tuple, range or array of whole numbers as a tuple; raise `SpecError` for other values."""
    return tuple(_integers(what, "a list of whole numbers", values, 1).tolist())


def whole_pairs(what: str, values: Any) -> tuple[tuple[int, int], ...]:
    """Return a list, tuple or array ``[n, 2]`` of pairs of whole numbers as tuples, see `whole_numbers`."""
    expected = "a list of pairs of whole numbers"
    pairs = _integers(what, expected, values, 2)
    if pairs.size and pairs.shape[1] != 2:
        raise SpecError(f"{what} must be {expected}, got {format_value(values)}")
    return tuple(map(tuple, pairs.tolist()))


def _integers(what: str, expected: str, values: Any, axes: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        numbers = np.asarray(values)
        empty = isinstance(values, list | tuple | range | np.ndarray) and not numbers.size
        if empty:
            return np.zeros((0,) * axes, np.int64)
        if numbers.ndim == axes and numbers.dtype.kind in "iu" and numbers.max() <= np.iinfo(np.int64).max:
            return numbers.astype(np.int64)
    except (TypeError, ValueError, OverflowError):  # lists of several lengths, and values that NumPy cannot convert
        pass
    raise SpecError(f"{what} must be {expected}, got {format_value(values)}")
