"""Branches and loops whose course is known while the graph is built."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_declaration import OperatorGraph
from volumetric.loaders.onnx_import.onnx_values import InputsNeededError, OnnxValue, TooManyStepsError, known_value
from volumetric.loaders.onnx_import.operators.operator_table import operator

MOST_STEPS = 4096
"""Steps of a loop that are written one after the other."""


@operator("If", static=(0,))
def _if(call: NodeCall, condition: OnnxValue) -> list[OnnxValue]:
    then, otherwise = call.attribute("then_branch"), call.attribute("else_branch")
    try:
        chosen = then if bool(call.array(condition, "the condition").reshape(-1)[0]) else otherwise
    except InputsNeededError as error:
        if error.names and error.names <= call.switches:
            raise
        return _both(call, condition, then, otherwise)
    return call.run_graph(chosen, [])


def _both(call: NodeCall, condition: OnnxValue, then: OperatorGraph, otherwise: OperatorGraph) -> list[OnnxValue]:
    """Compute both branches and select, if their results have the same shapes."""
    pairs = list(zip(call.run_graph(then, []), call.run_graph(otherwise, []), strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        call.array(condition, "the condition, and with it a shape,")
    test = call.work.reshape(call.tensor(condition), (1,))
    return [call.result(call.select(test, call.tensor(a), call.tensor(b)), a.dtype, a.shape) for a, b in pairs]


@operator("Loop", static=(0, 1))
def _loop(
    call: NodeCall, trips: OnnxValue | None = None, condition: OnnxValue | None = None, *carried: OnnxValue
) -> list[OnnxValue]:
    body: OperatorGraph = call.attribute("body")
    most = None if trips is None else int(call.number(trips, "the number of steps"))
    goes = True if condition is None else bool(call.number(condition, "the condition"))
    states, rows, step = list(carried), list[list[OnnxValue]](), 0
    while goes and (most is None or step < most):
        if step >= MOST_STEPS:
            raise _too_many_steps(call, "a loop")
        test, *results = call.run_graph(
            body, [known_value(np.array(step, np.int64)), known_value(np.array(True)), *states]
        )
        states = results[: len(carried)]
        rows.append(results[len(carried) :])
        goes = bool(call.array(test, "the condition of the next step").reshape(-1)[0])
        step += 1
    count = len(body.outputs) - 1 - len(carried)
    if not rows and count:
        raise call.refuse("a loop of no steps that collects values")
    return [*states, *(_stacked(call, [row[i] for row in rows], 0) for i in range(count))]


@operator("Scan")
def _scan(call: NodeCall, *inputs: OnnxValue) -> list[OnnxValue]:
    """Emit the steps of a scan one after the other."""
    body: OperatorGraph = call.attribute("body")
    if call.opset < 9:  # the first input is the lengths of sequences, and all have an axis for the batch
        raise call.refuse("Scan of opset 8")
    count = int(call.attribute("num_scan_inputs"))
    states, sequences = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    results = len(body.outputs) - len(states)
    axes = [
        call.axis(a, len(v.shape))
        for a, v in zip(call.numbers("scan_input_axes") or (0,) * count, sequences, strict=True)
    ]
    ways = call.numbers("scan_input_directions") or (0,) * count
    length = sequences[0].shape[axes[0]]
    if length > MOST_STEPS:
        raise _too_many_steps(call, "a scan")
    rows: list[list[OnnxValue]] = []
    for step in range(length):
        at = [length - 1 - step if way else step for way in ways]
        now = [_element(call, v, axis, i) for v, axis, i in zip(sequences, axes, at, strict=True)]
        outputs = call.run_graph(body, [*states, *now])
        states = outputs[: len(states)]
        rows.append(outputs[len(states) :])
    out_axes = call.numbers("scan_output_axes") or (0,) * results
    out_ways = call.numbers("scan_output_directions") or (0,) * results
    stacked: list[OnnxValue] = []
    for i in range(results):
        parts = [row[i] for row in rows]
        axis = call.axis(out_axes[i], len(parts[0].shape) + 1)
        stacked.append(_stacked(call, parts[::-1] if out_ways[i] else parts, axis))
    return [*states, *stacked]


def _too_many_steps(call: NodeCall, what: str) -> TooManyStepsError:
    return TooManyStepsError(
        f"{call.label}: {what} of more than {MOST_STEPS} steps is not supported, "
        "since each step becomes operations of its own",
        hint=f"pass inputs of {MOST_STEPS} rows or fewer, as parts of a sequence; LSTM, GRU and RNN take any length",
    )


def _element(call: NodeCall, value: OnnxValue, axis: int, index: int) -> OnnxValue:
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    if value.array is not None:
        return known_value(value.array.take(index, axis))
    return call.result(call.work.part(call.tensor(value), axis, index, index + 1), value.dtype, shape)


def _stacked(call: NodeCall, parts: Sequence[OnnxValue], axis: int) -> OnnxValue:
    """Join values along a new axis."""
    if all(part.array is not None for part in parts):
        return known_value(np.stack([part.array for part in parts if part.array is not None], axis))
    views = [call.work.reshape(call.tensor(part), (*part.shape[:axis], 1, *part.shape[axis:])) for part in parts]
    return call.result(call.work.concat(views, axis), parts[0].dtype)
