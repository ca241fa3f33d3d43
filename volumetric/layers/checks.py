"""Checks of the numbers that a declaration is made of."""

from __future__ import annotations

import math
from typing import Any

from volumetric.errors import SpecError


def check_whole(what: str, value: Any, least: int = 1) -> None:
    """Raise `SpecError` unless `value` is a whole number from `least` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SpecError(f"{what} must be a whole number from {least} on, got {value!r}")


def check_number(what: str, value: Any, *, above: float = 0.0) -> None:
    """Raise `SpecError` unless `value` is a finite number above `above`."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > above
    if not good:
        raise SpecError(f"{what} must be a finite number above {above:g}, got {value!r}")
