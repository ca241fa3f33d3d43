"""Translation of recurrent cells over time: LSTM, GRU and RNN of ONNX where they compute the same, else a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from volumetric.base.errors import UnsupportedError
from volumetric.formula.cells import CELLS
from volumetric.graph.operations.recurrent_inputs import recurrent_inputs
from volumetric.loaders.onnx_export.onnx_loops import LoopInputs, write_cell, write_loop
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import Size

_OPERATORS: Final = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
_ORDERS: Final = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""Blocks of weights in the order of ONNX: i o f c, and z r h."""


@translates("recurrent")
def _recurrent(writer: OnnxWriter, of: Operands) -> list[str]:
    if of.attrs["resets"]:
        raise UnsupportedError("ONNX export of resets within a call")
    return _as_operator(writer, of) or _as_loop(writer, of)


def _as_operator(writer: OnnxWriter, of: Operands) -> list[str] | None:
    """Write an operator for the cell and the product before it; None: ONNX has none that computes the same."""
    from_x, weight, *rest = of.inputs
    cell, (batch, length, wide) = of.attrs["cell"], of.shapes[0]
    starts, bias, _ = recurrent_inputs(rest, of.attrs)
    size: Any = of.shapes[1][1]
    all_wide: Any = wide
    note = writer.notes.get(writer.source_of(from_x), ())
    if cell not in _OPERATORS or size * CELLS[cell].blocks != wide or note[:1] != ("gemm",):
        return None
    _, x, w, *x_bias = note
    width = writer.width_of(w)
    if width is None:
        return None
    x = writer.reshape(x, (_product(batch, length), width), (batch, length, width))
    x = writer.node("Transpose", x, perm=[1, 0, 2])
    weights = [writer.node("Unsqueeze", _in_order(writer, part, cell, size), writer.ints(0)) for part in (w, weight)]
    biases = ""
    if x_bias or bias:
        zeros = writer.zeros(all_wide)
        parts = [x_bias[0] if x_bias else zeros, bias[0] if bias else zeros]
        joined = writer.node("Concat", *(_in_order(writer, part, cell, size) for part in parts), axis=0)
        biases = writer.node("Unsqueeze", joined, writer.ints(0))
    firsts = [writer.node("Unsqueeze", state, writer.ints(0)) for state in starts]
    attrs: dict[str, Any] = {"hidden_size": size}
    attrs |= {"linear_before_reset": 1} if cell == "gru" else {}
    attrs |= {"activations": ["Relu"]} if cell == "rnn_relu" else {}
    y, *last = writer.nodes_of(_OPERATORS[cell], (x, *weights, biases, "", *firsts), 1 + len(starts), **attrs)
    # [T, 1, B, H] → [B, T, H]
    y = writer.node("Transpose", writer.node("Squeeze", y, writer.ints(1)), perm=[1, 0, 2])
    return [y, *(writer.node("Squeeze", state, writer.ints(0)) for state in last[1:])]


def _product(a: Size, b: Size) -> Size:
    from volumetric.loaders.onnx_export.open_graph import RowSize

    for one, other in ((a, b), (b, a)):
        if isinstance(one, int) and isinstance(other, RowSize):
            return RowSize(other.base * one, other.rate * one)
    return a * b  # pyright: ignore[reportOperatorIssue]  (both are numbers)


def _in_order(writer: OnnxWriter, x: str, cell: str, size: int) -> str:
    """Return the blocks of a weight or bias in the order of ONNX."""
    if cell not in _ORDERS:
        return x
    parts = writer.nodes_of("Split", (x,), CELLS[cell].blocks, axis=0, num_outputs=CELLS[cell].blocks)
    return writer.node("Concat", *(parts[i] for i in _ORDERS[cell]), axis=0)


def _as_loop(writer: OnnxWriter, of: Operands) -> list[str]:
    from_x, weight, *rest = of.inputs
    cell = CELLS[of.attrs["cell"]]
    starts, bias, _ = recurrent_inputs(rest, of.attrs)
    wide: Any = of.shapes[0][2]
    width: Any = of.shapes[1][1]
    size, batch = wide // cell.blocks, of.shapes[0][0]
    heads, blocks = size // width, cell.blocks
    by_head = writer.reshape(weight, of.shapes[1], (blocks, heads, width, width))
    by_head = writer.node("Transpose", by_head, perm=[1, 3, 0, 2])
    by_head = writer.reshape(by_head, (heads, width, blocks, width), (heads, width, blocks * width))

    def step(inner: OnnxWriter, states: Sequence[str], xs: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        h = inner.reshape(states[0], (batch, size), (batch, heads, width))
        product = inner.node("MatMul", inner.node("Transpose", h, perm=[1, 0, 2]), by_head)
        product = inner.reshape(product, (heads, batch, blocks * width), (heads, batch, blocks, width))
        product = inner.node("Transpose", product, perm=[1, 2, 0, 3])
        from_h = inner.reshape(product, (batch, blocks, heads, width), (batch, wide))
        from_h = inner.node("Add", from_h, bias[0]) if bias else from_h
        after = write_cell(inner, of.attrs["cell"], xs[0], from_h, dict(zip(cell.after, states, strict=True)))
        return after, after[:1]

    last, ys = write_loop(writer, LoopInputs(states=starts, xs=(from_x,), axis=1), step)
    return [ys[0], *last[1:]]
