"""Checks of the numbers that a declaration is made of."""

from __future__ import annotations

import math
from typing import Any

from volumetric.errors import SpecError
from volumetric.hints import shown


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
