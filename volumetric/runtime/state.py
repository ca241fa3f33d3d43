"""Bookkeeping of a sequence's position, shared by the states of all devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import GenerationError, ShapeError
from volumetric.layers import StateSpec
from volumetric.runtime.plan import Plan

_LAST_ID = 2**31 - 1


def check_room(position: int, new: int, context: int) -> None:
    """Raise `GenerationError` unless `new` more rows fit a state that holds `position` of `context`."""
    if position + new > context:
        raise GenerationError(
            f"{position} tokens in the context and {new} more do not fit its {context}",
            hint="shorten the prompt, or open the model with a larger context",
        )


def has_fixed(specs: Mapping[str, StateSpec]) -> bool:
    """Whether any of the states has one value for the whole sequence."""
    return any(spec.kind == "fixed" for spec in specs.values())


def check_trim(position: int, to: int, specs: Mapping[str, StateSpec], reach: int) -> None:
    """Raise `GenerationError` unless a state of `position` rows and this `reach` can be cut back to `to`."""
    if not 0 <= to <= position:
        raise GenerationError(f"cannot trim a state of {position} tokens to {to}")
    if not 0 < to < reach:
        return
    fixed = next((key for key, spec in specs.items() if spec.kind == "fixed"), None)
    why = f"{fixed} has one value, that after the last token"
    if fixed is None:
        why = f"rows that lie behind windows are gone, and it goes back to {reach} at most"
    raise GenerationError(
        f"cannot trim a state of {position} tokens to {to}: {why}",
        hint="fork the state where you may want to come back to; trim(0) starts anew",
    )


def check_input(plan: Plan, x: NDArray[Any]) -> NDArray[Any]:
    """Return `x` in the dtype of the plan's input; raise `ShapeError` if it is not what the plan reads."""
    value = plan.values[plan.inputs[0]]
    x = np.asarray(x)
    if x.ndim != len(value.shape) or x.shape[1:] != value.shape[1:]:
        axes = ", ".join(["T", *map(str, value.shape[1:])])
        raise ShapeError(f"the network reads {value.dtype} [{axes}], got an array of shape {x.shape}")
    if x.shape[0] == 0:
        raise ShapeError("the network needs at least one row of input, got none")
    wants_ids = value.dtype == "int32"
    if wants_ids != (x.dtype.kind in "iu"):
        raise ShapeError(f"the network reads {value.dtype}, got {x.dtype}")
    if wants_ids and x.size and (x.min() < 0 or (x.dtype != np.int32 and x.max() > _LAST_ID)):
        raise GenerationError(f"token ids must lie in 0 … {_LAST_ID}, got {int(x.min())} to {int(x.max())}")
    return np.ascontiguousarray(x, value.dtype)


def check_vocabulary(plan: Plan, ids: NDArray[np.int32]) -> None:
    """Raise `GenerationError` if an id has no row in an embedding that reads the plan's input."""
    for step in plan.steps:
        if step.op != "embedding" or step.inputs[0] != plan.inputs[0]:
            continue
        vocabulary = step.attrs["spec"].ids
        if int(ids.max()) >= vocabulary:
            at = int(ids.argmax())
            raise GenerationError(
                f"token id {int(ids[at])} at position {at} is outside of the vocabulary of {vocabulary}",
                hint="use the tokenizer that belongs to this model",
            )
