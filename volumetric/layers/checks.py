"""Checks of the numbers that a declaration is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.base.hints import shown, suggestion

T = TypeVar("T")


def check_whole(what: str, value: Any, least: int = 1, *, most: int | None = None) -> None:
    """Raise `SpecError` unless `value` is a whole number from `least` on, to `most` if given."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not good or (most is not None and value > most):
        reach = f"from {least} on" if most is None else f"from {least} to {most:,}"
        raise SpecError(f"{what} must be a whole number {reach}, got {shown(value)}")


def check_number(what: str, value: Any, *, above: float = 0.0) -> None:
    """Raise `SpecError` unless `value` is a finite number above `above`."""
    try:
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > above
    except OverflowError:
        good = False
    if not good:
        raise SpecError(f"{what} must be a finite number above {above:g}, got {shown(value)}")


def as_number(what: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a finite number between bounds as a float, -0 as 0; raise `SpecError` where it is none."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value) + 0.0
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        ends = [f"from {least:g}"] * (least > -math.inf) + [f"to {most:g}"] * (most < math.inf)
        raise SpecError(f"{what} must be a finite number {' '.join(ends)}".rstrip() + f", got {shown(value)}")
    return number


def check_text(what: str, value: Any) -> None:
    """Raise `SpecError` unless `value` is text that a file can hold."""
    if not isinstance(value, str):
        raise SpecError(f"{what} is text, got {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SpecError(f"{what}: half of a surrogate pair, which is no text") from None


def check_choice(what: str, value: Any, of: Iterable[str]) -> None:
    """Raise `SpecError`, with the nearest of them, unless `value` is one of some words."""
    known = list(of)
    if not isinstance(value, str) or value not in known:
        raise SpecError(f"{what}: unknown {shown(value)}", hint=suggestion(value, known))


def check_flag(what: str, value: Any) -> None:
    """Raise `SpecError` unless `value` is true or false."""
    if not isinstance(value, bool):
        raise SpecError(f"{what} must be true or false, got {shown(value)}")


def tuple_of(what: str, given: Any, kind: type[T] | tuple[type[T], ...]) -> tuple[T, ...]:
    """Return a list or tuple as a tuple; raise `SpecError` unless its members are of a kind."""
    if not isinstance(given, list | tuple):
        raise SpecError(f"{what} must be a list, got {shown(given)}")
    for value in given:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise SpecError(f"{what} must be a list of {kinds}, got {shown(value)} in it")
        if isinstance(value, str):
            check_text(what, value)
    return tuple(given)


def whole_numbers(what: str, given: Any) -> tuple[int, ...]:
    """Return a list, tuple, range or array of whole numbers as a tuple; raise `SpecError` where it is none."""
    return tuple(_integers(what, "a list of whole numbers", given, 1).tolist())


def whole_pairs(what: str, given: Any) -> tuple[tuple[int, int], ...]:
    """Return a list, tuple or array ``[n, 2]`` of pairs of whole numbers as tuples, as `whole_numbers` does."""
    wanted = "a list of pairs of whole numbers"
    found = _integers(what, wanted, given, 2)
    if found.size and found.shape[1] != 2:
        raise SpecError(f"{what} must be {wanted}, got {shown(given)}")
    return tuple(map(tuple, found.tolist()))


def _integers(what: str, wanted: str, given: Any, axes: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    try:
        found = np.asarray(given)
        empty = isinstance(given, list | tuple | range | np.ndarray) and not found.size
        if empty:
            return np.zeros((0,) * axes, np.int64)
        if found.ndim == axes and found.dtype.kind in "iu" and found.max() <= np.iinfo(np.int64).max:
            return found.astype(np.int64)
    except (TypeError, ValueError, OverflowError):  # lists of several lengths, and what NumPy makes nothing of
        pass
    raise SpecError(f"{what} must be {wanted}, got {shown(given)}")
