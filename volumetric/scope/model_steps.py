"""Runs a model step by step with the weights of one step in memory, and reads what attention looks at on the way.

Each step of the plan is emitted as a graph of its own and interpreted by NumPy: the same operations as on the reference
device. In these graphs the softmax over positions is a node, so its result is the matrix of attention, with rotary
embeddings, groups, windows, soft caps and sinks as the layer itself has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.graph.build import GraphBuilder
from volumetric.graph.interpret import interpret
from volumetric.layers import MultiHeadAttention
from volumetric.run.graph.network_graph import emit_plan
from volumetric.run.plan import Plan, Step

ReadWeight = Callable[[str], Array]
"""Key of a parameter → its values, float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One step that ran.

    Attributes
    ----------
    output : the rows that it returns
    attention : of a layer of attention: the weights of its softmax, ``[heads, T, T]``: row i of a head is what position
        i reads. A row sums to 1, or to less with a sink. None: of other layers
    """

    step: Step
    output: Array
    attention: F32Array | None


def run_steps(plan: Plan, read: ReadWeight, inputs: Mapping[str, Array]) -> Iterator[StepResult]:
    """Run a plan on one sequence that starts with its first row, and yield each step.

    Parameters
    ----------
    read : called for the parameters of a step when it runs; nothing is kept
    inputs : rows of each input by name, ``[T, …]``; inputs with a default may be left out

    Raises
    ------
    UnsupportedError : a link closes a loop
    """
    rows = len(next(iter(inputs.values())))
    values: dict[int, Array] = {}
    for name, i in plan.inputs.items():
        value = plan.values[i]
        shape, dtype = (rows, *value.shape[1:]), np.dtype(value.dtype)
        values[i] = inputs[name].astype(dtype) if name in inputs else np.full(shape, value.default or 0, dtype)
    last = {i: at for at, step in enumerate(plan.steps) for i in step.inputs}
    for at, step in enumerate(plan.steps):
        output, attention = _run_step(plan, step, read, [values[i] for i in step.inputs])
        values |= dict.fromkeys(step.outputs, output)
        for i in step.inputs:
            if last[i] == at:
                values.pop(i, None)
        yield StepResult(step=step, output=output, attention=attention)


def _run_step(plan: Plan, step: Step, read: ReadWeight, inputs: Sequence[Array]) -> tuple[Array, F32Array | None]:
    """Return the output of a step, and the weights of attention if it is such a layer."""
    numbers = [*dict.fromkeys(step.inputs)]
    names = {"input" if k == 0 else f"input{k}": i for k, i in enumerate(numbers)}
    alone = replace(
        plan, steps=(step,), inputs=MappingProxyType(names), outputs=MappingProxyType({"output": step.outputs[0]})
    )
    work, by_number = GraphBuilder(), dict(zip(step.inputs, inputs, strict=True))
    shapes = {name: by_number[i].shape for name, i in names.items()}
    tensors = {name: work.input(name, shapes[name], plan.values[i].dtype) for name, i in names.items()}
    output = emit_plan(work, alone, tensors).outputs["output"]
    spec = step.attrs.get("spec")
    softmax = [node.outputs[0] for node in work.nodes if node.op == "softmax"]
    watched = softmax[:1] if isinstance(spec, MultiHeadAttention) else []
    graph = work.finish([output, *watched])
    buffers = {key: read(key) for key in graph.tensors_by_key}
    y, *weights = interpret(graph, [by_number[i] for i in numbers], buffers)
    if not weights or not isinstance(spec, MultiHeadAttention):
        return y, None
    rows, kv = len(y), spec.kv_heads
    # The layer's axes: queries that share a key head, sequences, key heads, rows, columns; a sink is the last column.
    by_group = weights[0].reshape(spec.num_heads // kv, kv, rows, -1)[..., :rows]
    return y, np.ascontiguousarray(by_group.swapaxes(0, 1).reshape(spec.num_heads, rows, rows))
