"""Links with a delay on the reference device: reading and keeping the last rows of a layer's output."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.layers import StateSpec
from volumetric.run.plan import Plan, Step


def run_delay(plan: Plan, step: Step, values: dict[int, Array], memory: Memory | None) -> None:
    """Run one of the steps ``delay``, ``recall`` and ``retain``, see `Plan`: put its output, if any, into `values`."""
    key = step.states["past"]
    spec = plan.states[key]
    rows = values[next(iter(plan.inputs.values()))]
    made = values[step.inputs[0]] if step.inputs else None
    dtype = made.dtype if made is not None else _held(plan, spec, values)
    past = np.zeros(spec.shape, dtype) if memory is None else memory.read(key, spec.shape, dtype)
    if made is None:
        values[step.outputs[0]] = past[: len(rows)]
        return
    joined = np.concatenate([past, made])
    if memory is not None:
        memory.write(key, joined[len(made) :])
    if step.outputs:
        values[step.outputs[0]] = joined[: len(made)]


def _held(plan: Plan, spec: StateSpec, values: dict[int, Array]) -> np.dtype[Any]:
    """Type of the rows of a later layer: floats are as wide as those of the inputs, if there are any."""
    floats = [values[i].dtype for i in plan.inputs.values() if np.issubdtype(values[i].dtype, np.floating)]
    return floats[0] if floats and spec.dtype == "float32" else np.dtype(spec.dtype)


def delay_vjp(step: Step, g: Array) -> Array:
    """Gradient of the input of a ``delay``, in a sequence that begins with the call."""
    later = g[step.attrs["rows"] :]
    return np.concatenate([later, np.zeros_like(g[: len(g) - len(later)])])


def refuse_loops(plan: Plan, what: str) -> None:
    """Raise `UnsupportedError` if a layer reads what a later one made."""
    recall = next((step for step in plan.steps if step.op == "recall"), None)
    if recall is not None:
        raise UnsupportedError(
            f"{what} through the loop that the link {recall.attrs['link']} closes",
            hint="remove the link, or let its source come before its target",
        )
