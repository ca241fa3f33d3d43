"""Recording of products with packed weights: matvec for few rows, tiles for many."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from volumetric.devices.gpu.command_list import RecordedDispatch, entry
from volumetric.devices.gpu.kernels import gemm_tiles, matmul, matrix_tiles, row_predicate
from volumetric.devices.gpu.kernels.dispatch import Caps, ceil_div
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.row_predicate import RowPredicate
from volumetric.devices.gpu.weight_buffers import MatrixShard, ResidentMatrix
from volumetric.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.devices.gpu.encode import RecordingFrame, RowRecorder


def product_of(r: RowRecorder, node: Node) -> tuple[MatmulShape, ResidentMatrix]:
    """Return the shape of a `linear`'s product, with the format of the first shard."""
    attrs, keys = node.attrs, r.graph.keys_by_role(node)
    parts: tuple[int, ...] = attrs["parts"]
    gated = attrs["combine"] == "gated"
    matrix = r.weights.matrix(tuple(keys[f"weight.{i}"] for i in range(len(parts))), abreast=gated)
    return shape_of(attrs, keys, matrix, int8=r.int8), matrix


def shape_of(attrs: Mapping[str, Any], roles: Collection[str], matrix: ResidentMatrix, *, int8: bool) -> MatmulShape:
    """Return the shape of a `linear`'s product, given its attributes and the roles of its parameters."""
    parts: tuple[int, ...] = attrs["parts"]
    gated = attrs["combine"] == "gated"
    return MatmulShape(
        k=matrix.k,
        n=parts[0] if gated else sum(parts),
        format=matrix.format,
        gated=gated,
        activation=attrs["activation"],
        norm=attrs["norm"],
        norm_eps=attrs["norm_eps"],
        norm_unit_offset=attrs["norm_unit_offset"],
        norm_weight="norm.weight" in roles,
        norm_bias="norm.bias" in roles,
        bias=any(f"bias.{i}" in roles for i in range(len(parts))),
        residual=attrs["residual"],
        softcap=attrs["softcap"],
        limit=attrs["limit"],
        up_offset=attrs["up_offset"],
        int8=int8,
    )


def linear(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    """A product of one or more matrices, including its fused operations."""
    shape, matrix = product_of(r, node)
    buffers = _operands(r, node, frame, shape)
    predicate = row_predicate.NONE
    halves = meets_halves(r, matrix, shape, frame.rows)
    batched = not halves and frame.rows <= matmul.most_batched(r.caps)
    if node.predicate is not None and (batched or r.caps.max_storage_buffers >= row_predicate.MOST_BUFFERS):
        predicate = row_predicate.column(r.width(node.predicate.tensor), node.predicate.column)
        buffers["gate"] = frame.values[node.predicate.tensor]
    if batched:
        return _record_matvec(r, node, shape, matrix, frame, buffers, predicate)
    if not halves:
        return _record_gemm(r, shape, matrix, frame, buffers, predicate)
    return _record_matrix(r, shape, matrix, frame, buffers, predicate, ready=node.inputs[0] in frame.halved)


def _record_matvec(
    r: RowRecorder,
    node: Node,
    shape: MatmulShape,
    matrix: ResidentMatrix,
    frame: RecordingFrame,
    buffers: dict[str, str],
    predicate: RowPredicate,
) -> list[RecordedDispatch]:
    partials = frame.partials.get(node.inputs[0])
    if partials is not None:
        buffers = buffers | r.attention.joined_splits()
    entries = []
    for shard, own, bound in shard_products(shape, matrix, buffers):
        tuning = r.cut_matvec(own, shard.units, frame.rows)
        dispatch = matmul.matvec(
            own, r.caps, first=shard.first, units=shard.units, source=partials, tuning=tuning, guard=predicate
        )
        entries.append(entry(dispatch, bound, control=frame.control if tuning.batch > 1 else None))
    return entries


def _record_gemm(
    r: RowRecorder,
    shape: MatmulShape,
    matrix: ResidentMatrix,
    frame: RecordingFrame,
    buffers: dict[str, str],
    predicate: RowPredicate,
) -> list[RecordedDispatch]:
    entries, buffers = row_statistics(r, shape, buffers, frame.control)
    tile = gemm_tiles.choose_tile(shape, frame.rows, r.caps)
    for shard, own, bound in shard_products(shape, matrix, buffers):
        dispatch = gemm_tiles.gemm(own, r.caps, tile, first=shard.first, units=shard.units, guard=predicate)
        entries.append(entry(dispatch, bound, control=frame.control))
    return entries


def _record_matrix(
    r: RowRecorder,
    shape: MatmulShape,
    matrix: ResidentMatrix,
    frame: RecordingFrame,
    buffers: dict[str, str],
    predicate: RowPredicate,
    *,
    ready: bool,
) -> list[RecordedDispatch]:
    """Halve x, then multiply on matrix units; partial sums of products whose steps are split are joined at the end.

    `ready`: x has been halved, see `halving_norm`.
    """
    halve, buffers = halved_operand(r, shape, buffers, frame.control)
    sides = {name: buffers.pop(name) for name in ("x", "undo")}
    entries = [] if ready else [halve]
    for shard, own, bound in shard_products(shape, matrix, {**buffers, **sides}):
        cut = r.cut_matrix(own, shard.units, frame.rows)
        first, units, rows = shard.first, shard.units, frame.rows
        product = matrix_tiles.matrix_gemm(own, r.caps, cut, first=first, units=units, rows=rows, guard=predicate)
        if cut.splits == 1:
            entries.append(entry(product, bound, control=frame.control))
            continue
        splits = r.spare(matrix_tiles.partial_bytes(own, cut, frame.rows), "partial products")
        entries.append(entry(product, {**bound, "y": splits}, control=frame.control))
        after = {name: buffer for name, buffer in buffers.items() if name != "gate"}
        join = matrix_tiles.join_splits(own, cut, first=first, units=units, rows=rows)
        entries.append(entry(join, {**after, "splits": splits}, control=frame.control))
    return entries


def shard_products(
    shape: MatmulShape, matrix: ResidentMatrix, buffers: Mapping[str, str]
) -> Iterator[tuple[MatrixShard, MatmulShape, dict[str, str]]]:
    """Yield each shard of a matrix, with the shape and the buffers of the product with it."""
    for shard in matrix.shards:
        yield shard, replace(shape, format=shard.format), {**buffers, **shard.buffers}


def row_statistics(
    r: RowRecorder, shape: MatmulShape, buffers: dict[str, str], control: str
) -> tuple[list[RecordedDispatch], dict[str, str]]:
    """Record the statistics of the rows of x that a tiled product with a norm reads.

    Returns that, and the product's buffers; without a norm nothing is added.
    """
    if shape.norm is None:
        return [], buffers
    stats = {"x": buffers["x"], "stats": r.stats}
    return [entry(gemm_tiles.row_stats(shape), stats, control=control)], {**buffers, "stats": r.stats}


def multiplies_halves(compute: str, caps: Caps) -> bool:
    """Whether many rows meet weights as float16: if wanted, or by itself on a GPU with matrix units."""
    return compute == "float16" or (compute == "auto" and caps.matrix_units)


def meets_halves(r: RowRecorder, matrix: ResidentMatrix, shape: MatmulShape, rows: int) -> bool:
    """Whether so many rows of x and these weights are multiplied as float16."""
    taken = matrix.fits_half and all(matrix_tiles.takes(shard.format) for shard in matrix.shards)
    return r.halves and taken and matrix_tiles.gains(shape, rows, r.caps)


def halving_norm(r: RowRecorder, node: Node, frame: RecordingFrame) -> RecordedDispatch | None:
    """Record a norm that also halves its rows, if the next node is a product that reads halves of them; else None.

    A norm that only products read is theirs already; this one has other readers, such as a residual.
    """
    at = next(i for i, other in enumerate(frame.nodes) if other is node)
    reader = next(iter(frame.nodes[at + 1 :]), None)
    if reader is None or reader.op != "linear" or reader.inputs[0] != node.outputs[0] or reader.attrs["norm"]:
        return None
    shape, matrix = product_of(r, reader)
    if not meets_halves(r, matrix, shape, frame.rows):
        return None
    keys, attrs = r.graph.keys_by_role(node), node.attrs
    normed = replace(
        shape,
        norm=attrs["kind"],
        norm_eps=attrs["eps"],
        norm_unit_offset=attrs["unit_offset"],
        norm_weight="weight" in keys,
        norm_bias="bias" in keys,
    )
    width = 4 * ceil_div(shape.k, 4)
    params = r.weights.vector("norm", (keys.get("weight"), width), (keys.get("bias"), width))
    buffers = {"x": frame.values[node.inputs[0]]} | ({} if params is None else {"norm_params": params})
    frame.halved.add(node.outputs[0])
    return halved_operand(r, normed, buffers, frame.control, normed_rows=frame.values[node.outputs[0]])[0]


def halved_operand(
    r: RowRecorder,
    shape: MatmulShape,
    buffers: Mapping[str, str],
    control: str,
    *,
    times: int = 1,
    normed_rows: str | None = None,
) -> tuple[RecordedDispatch, dict[str, str]]:
    """Record the halving of x, which has `times` rows for each row of the call.

    Returns that, and the product's buffers: `buffers` with the halves for x and its norm. `normed_rows`: buffer of the
    rows after the norm, if others read them.
    """
    rows = r.product_rows * times
    halved = r.spare(2 * matrix_tiles.halved_stride(shape.k) * rows, "halved rows")
    undo = r.spare(4 * rows, "powers of two of halved rows")
    before = {name: buffers[name] for name in ("x", "norm_params") if name in buffers}
    after = {name: buffer for name, buffer in buffers.items() if name not in before}
    rows_after = {} if normed_rows is None else {"y": normed_rows}
    dispatch = matrix_tiles.halve_rows(shape, times=times, keep=normed_rows is not None)
    halve = entry(dispatch, {**before, **rows_after, "halved": halved, "undo": undo}, control=control)
    return halve, {**after, "x": halved, "undo": undo}


def _operands(r: RowRecorder, node: Node, frame: RecordingFrame, shape: MatmulShape) -> dict[str, str]:
    """Buffers other than the weights."""
    keys = r.graph.keys_by_role(node)
    buffers = {"x": frame.values[node.inputs[0]], "y": frame.values[node.outputs[0]]}
    norm = norm_params(r, keys, shape.k)
    parts: tuple[int, ...] = node.attrs["parts"]
    padded = 4 * ceil_div(shape.n, 4)
    lengths = [padded, padded] if shape.gated else [*parts[:-1], parts[-1] + padded - shape.n]
    bias = r.weights.vector("bias", *((keys.get(f"bias.{i}"), length) for i, length in enumerate(lengths)))
    residual = node.input_by_role("residual")
    optional = {"norm_params": norm, "bias": bias, "residual": None if residual is None else frame.values[residual]}
    return buffers | {name: buffer for name, buffer in optional.items() if buffer is not None}


def norm_params(r: RowRecorder, keys: Mapping[str, str], k: int) -> str | None:
    """Buffer with the gain and the bias of the norm of rows of `k` elements."""
    width = 4 * ceil_div(k, 4)
    return r.weights.vector("norm", (keys.get("norm.weight"), width), (keys.get("norm.bias"), width))
