"""Translation of attention over the edges of a graph that is known when the model is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_rowwise import write_masked_softmax
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter


@translates("edge_attend")
def _edge_attend(writer: OnnxWriter, of: Operands) -> str:
    """Write attention of receivers over tables of their edges, ``[R, most_in]``, filled up with edges of weight 0."""
    q, kv, bias, starts, senders, *_ = of.inputs
    first, sent = writer.value_of(starts), writer.value_of(senders)
    if first is None or sent is None:
        raise UnsupportedError("ONNX export of a graph needs edges that are known")
    heads, most = of.attrs["heads"], max(of.attrs["most_in"], 1)
    (receivers, wide_batch, inner), (_, batch, both) = of.shapes[0], of.shapes[1]
    inner_: Any = inner
    both_: Any = both
    width, value_width = inner_ // heads, (both_ - inner_) // heads
    degrees = np.diff(first)
    if not len(sent):
        return writer.node("Expand", writer.number(0), writer.sizes(of.results[0]))
    inside = np.arange(most) < degrees[:, None]
    edges = np.where(inside, first[:-1, None] + np.arange(most), 0)
    rows = writer.constant(sent[edges].astype(np.int64))
    table = writer.node("Gather", kv, rows, axis=0)  # [R, most, B, …]
    keys, values = writer.part(table, -1, 0, inner_), writer.part(table, -1, inner_, None)
    keys = writer.reshape(keys, (receivers, most, batch, inner), (receivers, most, batch, heads, width))
    own = (receivers, most, batch, heads * value_width), (receivers, most, batch, heads, value_width)
    values = writer.reshape(values, *own)
    queries = writer.reshape(q, of.shapes[0], (receivers, 1, wide_batch, heads, width))
    logits = writer.node("ReduceSum", writer.node("Mul", queries, keys), writer.ints(-1), keepdims=0)
    logits = writer.node("Div", logits, writer.number(np.sqrt(np.float32(width))))  # [R, most, B, h]
    biases = writer.node("Gather", bias, writer.constant(edges.astype(np.int64)), axis=0)  # [R, most, h or 1]
    logits = writer.node("Add", logits, writer.node("Unsqueeze", biases, writer.ints(2)))
    logits = writer.node("Where", writer.constant(inside[:, :, None, None]), logits, writer.number(-np.inf))
    by_edge = write_masked_softmax(writer, writer.node("Transpose", logits, perm=[0, 2, 3, 1]))  # [R, B, h, most]
    columns = writer.node("Transpose", values, perm=[0, 2, 3, 1, 4])  # [R, B, h, most, e]
    y = writer.node("MatMul", writer.node("Unsqueeze", by_edge, writer.ints(3)), columns)
    return writer.reshape(y, (receivers, batch, heads, 1, value_width), of.results[0])
