"""Translations of attention over the rows of a call, and of rotary position embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.graph.numeric.rope import Rope, inverse_frequencies
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_rowwise import gain_of, write_norm
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import Size


@translates("rope")
def _rope(writer: OnnxWriter, of: Operands) -> str:
    x, cos, sin = of.inputs
    half: Any = of.shapes[1][1]
    width = of.shapes[0][3]
    cos, sin = (writer.reshape(t, of.shapes[1], (of.shapes[1][0], 1, half)) for t in (cos, sin))
    return _turned(writer, x, cos, writer.node("Neg", sin) if of.attrs["back"] else sin, half, width)


def _turned(writer: OnnxWriter, x: str, cos: str, sin: str, half: int, width: Size) -> str:
    """Rotate pairs of the last axis; `cos` and `sin` broadcast over heads."""
    axis = -1
    a, b = writer.part(x, axis, 0, half), writer.part(x, axis, half, 2 * half)
    first = writer.node("Sub", writer.node("Mul", a, cos), writer.node("Mul", b, sin))
    second = writer.node("Add", writer.node("Mul", b, cos), writer.node("Mul", a, sin))
    rest = [] if width == 2 * half else [writer.part(x, axis, 2 * half, None)]
    return writer.node("Concat", first, second, *rest, axis=axis)


def _tables(writer: OnnxWriter, rope: Rope, positions: str) -> tuple[str, str]:
    """Write cosines and sines of positions ``[T]``, each ``[T, 1, dim / 2]``."""
    key = f"tables of {rope} at {positions}"
    if key not in writer.notes:
        wide = writer.node("Unsqueeze", writer.cast(positions, "DOUBLE"), writer.ints(1, 2))
        angles = writer.node("Mul", wide, writer.constant(inverse_frequencies(rope)))
        factor = writer.constant(np.array(rope.attention_factor, np.float64))
        writer.notes[key] = tuple(
            writer.cast(writer.node("Mul", writer.node(op, angles), factor), "FLOAT") for op in ("Cos", "Sin")
        )
    cos, sin = writer.notes[key]
    return cos, sin


@translates("attend")
def _attend(writer: OnnxWriter, of: Operands) -> str:
    """Write attention of the rows of a call over one another, ``[T, heads · head_dim]``."""
    attrs, by_role = of.attrs, of.by_role()
    heads, kv, size = attrs["heads"], attrs["kv_heads"], attrs["head_dim"]
    rows, positions = of.shapes[0][0], by_role["positions"]
    every = writer.reshape(by_role["qkv"], of.shapes[0], (rows, heads + 2 * kv, size))
    q, k = writer.part(every, 1, 0, heads), writer.part(every, 1, heads, heads + kv)
    v = writer.part(every, 1, heads + kv, None)
    q = _normal_and_turned(writer, attrs, q, heads, by_role.get("q_norm"), positions)
    k = _normal_and_turned(writer, attrs, k, kv, by_role.get("k_norm"), positions)
    if attrs["temperature_scale"]:
        q = writer.node("Mul", q, _temperatures(writer, attrs, positions))
    shared = heads // kv
    q = writer.reshape(q, (rows, heads, size), (rows, kv, shared, size))
    q = writer.node("Transpose", q, perm=[1, 2, 0, 3])
    k = writer.node("Unsqueeze", writer.node("Transpose", k, perm=[1, 2, 0]), writer.ints(1))
    v = writer.node("Unsqueeze", writer.node("Transpose", v, perm=[1, 0, 2]), writer.ints(1))
    q = writer.node("Mul", q, writer.number(attrs["scale"]))
    scores = writer.node("MatMul", q, k)
    if attrs["softcap"] is not None:
        cap = writer.number(attrs["softcap"])
        scores = writer.node("Mul", writer.node("Tanh", writer.node("Div", scores, cap)), cap)
    mask = _mask(writer, attrs, positions)
    if mask is not None:
        scores = writer.node("Where", mask, scores, writer.number(-np.inf))
    weights = _softmax_with_sinks(writer, scores, by_role.get("sinks"), (kv, shared), rows)
    y = writer.node("Transpose", writer.node("MatMul", weights, v), perm=[2, 0, 1, 3])
    return writer.reshape(y, (rows, kv, shared, size), (rows, heads * size))


def _normal_and_turned(
    writer: OnnxWriter, attrs: Mapping[str, Any], x: str, heads: int, gain: str | None, positions: str
) -> str:
    """Write the norm and the rotation of queries or keys ``[T, heads, head_dim]``."""
    size = attrs["head_dim"]
    if attrs["qk_norm"] is not None:
        gain = gain_of(writer, gain, attrs["qk_norm_unit_offset"])
        apart = attrs["own_gains"] and gain is not None
        x = write_norm(writer, x, size, attrs["qk_norm"], attrs["qk_norm_eps"], None if apart else gain, None)
        if apart and gain is not None:
            x = writer.node("Mul", x, writer.reshape(gain, (heads * size,), (heads, size)))
    rope = attrs["rope"]
    if rope is None:
        return x
    cos, sin = _tables(writer, rope, positions)
    return _turned(writer, x, cos, sin, rope.dim // 2, size)


def _temperatures(writer: OnnxWriter, attrs: Mapping[str, Any], positions: str) -> str:
    """Write the factors of queries by position, ``[T, 1, 1]``."""
    one = writer.constant(np.array(1, np.int32))
    steps = writer.node("Add", positions, one)
    steps = writer.node("Div", steps, writer.constant(np.array(attrs["temperature_every"], np.int32)))
    wide = writer.node("Unsqueeze", writer.cast(writer.node("Add", steps, one), "DOUBLE"), writer.ints(1, 2))
    scaled = writer.node("Mul", writer.node("Log", wide), writer.constant(np.array(attrs["temperature_scale"])))
    return writer.cast(writer.node("Add", scaled, writer.constant(np.array(1.0))), "FLOAT")


def _mask(writer: OnnxWriter, attrs: Mapping[str, Any], positions: str) -> str | None:
    """Write which rows see which, bool ``[T, T]``; None: all see all."""
    window, chunk = attrs["window"], attrs["chunk"]
    key = f"mask {attrs['causal']} {window} {chunk} {positions}"
    if key not in writer.notes:
        down, along = (writer.node("Unsqueeze", positions, writer.ints(axis)) for axis in (1, 0))
        distance = writer.node("Sub", down, along)
        parts: list[str] = []
        if attrs["causal"]:
            parts.append(writer.node("GreaterOrEqual", distance, writer.constant(np.array(0, np.int32))))
        if window is not None:
            limit = writer.constant(np.array(window, np.int32))
            parts.append(writer.node("Less", writer.node("Abs", distance), limit))
        if chunk is not None:
            by = writer.constant(np.array(chunk, np.int32))
            parts.append(writer.node("Equal", writer.node("Div", down, by), writer.node("Div", along, by)))
        for i in range(1, len(parts)):
            parts[0] = writer.node("And", parts[0], parts[i])
        writer.notes[key] = tuple(parts[:1])
    return next(iter(writer.notes[key]), None)


def _softmax_with_sinks(writer: OnnxWriter, scores: str, sinks: str | None, groups: tuple[int, int], rows: Size) -> str:
    """Write the softmax of ``[kv, shared, T, S]`` with one more logit for each head, without its share."""
    if sinks is None:
        return writer.node("Softmax", scores, axis=-1)
    column = writer.reshape(sinks, (groups[0] * groups[1],), (*groups, 1, 1))
    column = writer.node("Expand", column, writer.sizes((*groups, rows, 1)))
    wide = writer.node("Softmax", writer.node("Concat", scores, column, axis=-1), axis=-1)
    return writer.node("Slice", wide, writer.ints(0), writer.ints(-1), writer.ints(-1))
