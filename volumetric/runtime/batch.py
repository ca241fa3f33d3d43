"""One new row for each of several sequences: what all devices check, and the plain way to run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import GenerationError, ShapeError
from volumetric.runtime.device import Executable, State
from volumetric.runtime.plan import Plan
from volumetric.runtime.state import check_input, check_room, check_vocabulary


def check_batch(plan: Plan, states: Sequence[State], x: NDArray[Any], context: int) -> NDArray[Any]:
    """Return `x` in the dtype of the plan's input.

    Raises
    ------
    ShapeError : `x` has not one row for each state
    GenerationError : a state is named twice or its context is full, or an id is outside of the vocabulary
    """
    x = check_input(plan, x)
    if len(x) != len(states):
        raise ShapeError(f"a batch needs one row for each sequence, got {len(x)} rows for {len(states)} sequences")
    if len({id(state) for state in states}) < len(states):
        raise GenerationError("a sequence occurs twice in the batch", hint="use state.fork()")
    if x.dtype == np.int32:
        check_vocabulary(plan, x)
    for state in states:
        check_room(state.position, 1, context)
    return x


def forward_each(executable: Executable, states: Sequence[State], x: NDArray[Any]) -> NDArray[np.float32]:
    """Run the rows of a checked batch one after the other."""
    return np.concatenate([executable.forward(state, x[i : i + 1]) for i, state in enumerate(states)])
