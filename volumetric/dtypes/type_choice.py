"""Settings that choose among a few numeric types by name, as ``compute="float16"``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from volumetric.base.errors import SpecError, VolumetricError
from volumetric.base.hints import suggestion
from volumetric.dtypes.registry import parse_dtype


def check_type_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise `SpecError` unless the setting `name` has one of the `known` values.

    Other spellings of a type, as ``"fp16"`` or ``np.float16``, are refused with the right one in the hint. A NumPy dtype
    is equal to its name, but nothing that stores or compares settings expects one.
    """
    if isinstance(value, str) and value in known:
        return
    meant = known_spelling(value, known)
    raise SpecError(
        f"{name} must be one of {', '.join(known)}, got {value!r}",
        hint=f"did you mean {meant!r}?" if meant else suggestion(value, known, f"leave {name} out for its default"),
    )


def known_spelling(value: Any, known: Sequence[str]) -> str | None:
    """Return the name in `known` of the type that `value` spells otherwise, if any."""
    with suppress(VolumetricError, ValueError):  # NumPy has several errors for what is no type
        meant = parse_dtype(value).name
        return meant if meant in known else None
    return None
