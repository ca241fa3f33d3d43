"""Translations of loops over time: ONNX's Scan, with a body of the operations of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from volumetric.base.errors import UnsupportedError
from volumetric.graph.operations.scan import scan_inputs, scan_outputs
from volumetric.loaders.onnx_export.onnx_elementwise import write_expressions
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates, write_nodes
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter, drop_unused
from volumetric.loaders.onnx_export.open_graph import OpenGraph

StepBody: TypeAlias = Callable[[OnnxWriter, Sequence[str], Sequence[str]], tuple[Sequence[str], Sequence[str]]]
"""``body(writer, states, xs) -> new states, ys`` writes one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopInputs:
    """What a loop reads: first states; sequences, along which axis, and their types in ONNX; its direction."""

    states: Sequence[str]
    xs: Sequence[str]
    axis: int = 0
    whole: Sequence[bool] = ()
    reverse: bool = False


def write_loop(writer: OnnxWriter, of: LoopInputs, body: StepBody) -> tuple[list[str], list[str]]:
    """Write a loop over an axis of sequences; return the last states, and the ys of all steps along that axis."""
    from onnx import TensorProto, helper

    inner = writer.body()
    states, xs = ([inner.name(hint) for _ in each] for hint, each in (("state", of.states), ("step", of.xs)))
    after, ys = body(inner, states, xs)
    # A body returns values of its own: neither its inputs, nor values of the graph around it, nor one value twice.
    after, ys = ([inner.node("Identity", name) for name in names] for names in (after, ys))
    whole = [*(False for _ in states), *(of.whole or (False for _ in xs))]
    kinds = [TensorProto.INT32 if each else TensorProto.FLOAT for each in whole]
    inputs = [helper.make_tensor_value_info(n, k, None) for n, k in zip((*states, *xs), kinds, strict=True)]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*after, *ys)]
    graph = helper.make_graph(drop_unused(inner.nodes, (*after, *ys)), "step", inputs, outputs)
    way = int(of.reverse)
    results = writer.nodes_of(
        "Scan",
        (*of.states, *of.xs),
        len(after) + len(ys),
        body=graph,
        num_scan_inputs=len(xs),
        scan_input_axes=[of.axis] * len(xs),
        scan_output_axes=[of.axis] * len(ys),
        scan_input_directions=[way] * len(xs),
        scan_output_directions=[way] * len(ys),
    )
    return results[: len(after)], results[len(after) :]


@translates("scan")
def _scan(writer: OnnxWriter, of: Operands) -> list[str]:
    body: OpenGraph = of.attrs["body"]
    xs, constants, states = scan_inputs(of.inputs, of.attrs)
    own = scan_inputs(body.graph.inputs, of.attrs)

    def step(inner: OnnxWriter, before: Sequence[str], now: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        names = dict(zip((*own.xs, *own.constants, *own.states), (*now, *constants, *before), strict=True))
        write_nodes(inner, body, names)
        ends = scan_outputs([names[i] for i in body.graph.outputs], {**of.attrs, "body": body.graph})
        return ends.states, ends.ys

    whole = [body.graph.tensors[i].dtype == "int32" for i in own.xs]
    if not xs:  # the steps are counted by a sequence that nobody reads
        xs = (writer.node("Expand", writer.number(0), writer.sizes((of.attrs["length"], 1))),)
        inputs = LoopInputs(states=states, xs=xs, reverse=of.attrs["reverse"])
        last, ys = write_loop(writer, inputs, lambda inner, before, _: step(inner, before, ()))
    else:
        inputs = LoopInputs(states=states, xs=xs, whole=whole, reverse=of.attrs["reverse"])
        last, ys = write_loop(writer, inputs, step)
    return [*ys, *last]


@translates("linear_scan")
def _linear_scan(writer: OnnxWriter, of: Operands) -> str:
    if of.attrs["reverse"] or of.attrs["keep"]:
        raise UnsupportedError("ONNX export of a scan of gradients, or resets within a call")
    u, a, start = of.inputs
    by_step = len(of.shapes[1]) == 3

    def step(inner: OnnxWriter, states: Sequence[str], xs: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        factor = xs[1] if by_step else a
        s = inner.node("Add", inner.node("Mul", factor, states[0]), xs[0])
        return [s], [s]

    xs = (u, a) if by_step else (u,)
    return write_loop(writer, LoopInputs(states=(start,), xs=xs, axis=1), step)[1][0]


@translates("rotate_scan")
def _rotate_scan(writer: OnnxWriter, of: Operands) -> str:
    if of.attrs["reverse"] or of.attrs["keep"]:
        raise UnsupportedError("ONNX export of a scan of gradients, or resets within a call")
    u, g, phi, start = of.inputs

    def step(inner: OnnxWriter, states: Sequence[str], xs: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        a, b = inner.nodes_of("Split", (states[0],), 2, axis=-1, num_outputs=2)

        def product(x: str, y: str) -> str:
            return inner.node("Mul", x, y)

        first = inner.node("Sub", product(g, a), product(phi, b))
        second = inner.node("Add", product(phi, a), product(g, b))
        s = inner.node("Add", inner.node("Concat", first, second, axis=-1), xs[0])
        return [s], [s]

    return write_loop(writer, LoopInputs(states=(start,), xs=(u,), axis=1), step)[1][0]


def write_cell(writer: OnnxWriter, cell: str, from_x: str, from_h: str, before: Mapping[str, str]) -> list[str]:
    """Write one step of a recurrent cell from its pre-activations; return the states after it."""
    from volumetric.formula.cells import CELLS

    formula = CELLS[cell]
    names: dict[str, Any] = dict(before)
    for kind, pre in (("x", from_x), ("r", from_h)):
        count = formula.blocks
        parts = [pre] if count == 1 else writer.nodes_of("Split", (pre,), count, axis=-1, num_outputs=count)
        names |= {f"{kind}{i}": part for i, part in enumerate(parts)}
    return write_expressions(writer, tuple(formula.after.values()), names)


@translates("cell")
def _cell(writer: OnnxWriter, of: Operands) -> list[str]:
    from volumetric.formula.cells import CELLS

    from_x, from_h, bias, *before = of.inputs
    formula, (rows, wide), (sets, _) = CELLS[of.attrs["cell"]], of.shapes[0], of.shapes[2]
    if sets != 1:  # each row of the bias belongs to equally many rows
        apart = writer.reshape(from_x, of.shapes[0], (sets, -1, wide))
        apart = writer.node("Add", apart, writer.node("Unsqueeze", bias, writer.ints(1)))
        from_x = writer.reshape(apart, (sets, -1, wide), (rows, wide))
    else:
        from_x = writer.node("Add", from_x, bias)
    known: dict[str, str] = {}
    if formula.direct:
        parts = writer.nodes_of("Split", before, len(formula.direct), axis=0, num_outputs=len(formula.direct))
        known = {n: writer.node("Squeeze", part, writer.ints(0)) for n, part in zip(formula.direct, parts, strict=True)}
    h, *others = write_cell(writer, of.attrs["cell"], from_x, from_h, known)
    if not others:
        return [h]
    stacked = [writer.node("Unsqueeze", each, writer.ints(0)) for each in others]
    return [h, writer.node("Concat", *stacked, axis=0)]
