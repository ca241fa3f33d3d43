"""Recording of mixtures of experts: two products with stacks of matrices, for the rows that chose each expert.

Few rows read the matrices of their own experts, and the second product accumulates the sum. Many rows are grouped by
expert, so that its matrices are read once for a block of rows; the sum is a separate launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from volumetric.devices.gpu.command_list import RecordedDispatch, entry
from volumetric.devices.gpu.kernels import experts as kernels
from volumetric.devices.gpu.kernels import gemm_tiles, matmul, matrix_stacks, matrix_tiles
from volumetric.devices.gpu.kernels.dispatch import Dispatch, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.experts import ExpertRoutes
from volumetric.devices.gpu.kernels.gemm_tiles import GemmTile
from volumetric.devices.gpu.kernels.matmul import ExpertSlots, MatmulShape, MatvecTuning, tune_batch, tune_matvec
from volumetric.devices.gpu.kernels.matrix_stacks import MatrixStack
from volumetric.devices.gpu.kernels.matrix_tiles import MatrixCut
from volumetric.devices.gpu.products import (
    halved_operand,
    meets_halves,
    norm_params,
    row_statistics,
    shape_of,
    shard_products,
)
from volumetric.devices.gpu.weight_buffers import MatrixShard, ResidentMatrix
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.devices.gpu.encode import RecordingFrame, RowRecorder

_Tuning: TypeAlias = MatvecTuning | GemmTile | MatrixCut


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixture:
    """A mixture node in the form its kernels need.

    Attributes
    ----------
    count, slots : number of experts, and experts of a row
    first, last : shapes of the products of an expert
    up, down : the matrices of all experts
    extra_buffers : buffers of each product other than its weights and its input
    """

    count: int
    slots: int
    first: MatmulShape
    last: MatmulShape
    up: ResidentMatrix
    down: ResidentMatrix
    extra_buffers: tuple[Mapping[str, str], Mapping[str, str]]


def experts(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    """A mixture of experts, with the choice before it and the sum after it."""
    attrs, pairs = node.attrs, r.most_rows * node.attrs["top_k"]
    mixture = _mixture(r, node)
    chosen = r.spare(8 * pairs, "chosen experts")
    choose = kernels.choose_experts(count=mixture.count, keep=mixture.slots, scoring=attrs["scoring"])
    choice = node.input_by_role("choice")
    assert choice is not None
    entries = [entry(choose, {"choice": frame.values[choice], "chosen": chosen})]
    few = frame.rows == 1 or frame.rows * mixture.slots <= mixture.count
    return entries + (_record_pairs if few else _record_groups)(r, node, frame, mixture, chosen)


def _mixture(r: RowRecorder, node: Node) -> _Mixture:
    attrs, keys, first = node.attrs, r.graph.keys_by_role(node), node.attrs["first"]
    count, parts = attrs["count"], range(len(first["parts"]))
    up = r.weights.matrix(tuple(keys[f"{i}.weight.{part}"] for i in range(count) for part in parts), abreast=True)
    down = r.weights.matrix(tuple(keys[f"{i}.down"] for i in range(count)), abreast=True)
    alike = {role.removeprefix("0.") for role in keys}
    width = r.width(node.outputs[0])
    after = {**LINEAR, "parts": (width,), "residual": attrs["residual"]}
    shape = shape_of(first, alike, up, int8=r.int8)
    last = replace(shape_of(after, (), down, int8=r.int8), bias="down_bias" in alike)
    biases = (
        _biases(r, keys, [f"bias.{part}" for part in parts], count, shape.n) if shape.bias else {},
        _biases(r, keys, ["down_bias"], count, width) if last.bias else {},
    )
    norm = norm_params(r, keys, shape.k)
    return _Mixture(
        count=count,
        slots=attrs["top_k"],
        first=shape,
        last=last,
        up=up,
        down=down,
        extra_buffers=(biases[0] | ({} if norm is None else {"norm_params": norm}), biases[1]),
    )


def _biases(r: RowRecorder, keys: Mapping[str, str], names: Sequence[str], count: int, width: int) -> dict[str, str]:
    """Buffer with the biases of all experts, one after the other."""
    roles = [f"{i}.{name}" for i in range(count) for name in names]
    buffer = r.weights.vector("bias", *((keys.get(role), 4 * ceil_div(width, 4)) for role in roles))
    return {} if buffer is None else {"bias": buffer}


def _record_pairs(
    r: RowRecorder, node: Node, frame: RecordingFrame, mixture: _Mixture, chosen: str
) -> list[RecordedDispatch]:
    """A few rows: each with its own experts, weighted by the first product, summed by the second one."""
    slots, first = mixture.slots, replace(mixture.first, weighted=True)
    hidden = r.spare(_pair_bytes(r, slots, first.n), "hidden rows of experts")
    buffers = {**mixture.extra_buffers[0], "x": frame.values[node.inputs[0]], "chosen": chosen, "y": hidden}
    entries = []
    for shard, own, bound in shard_products(first, mixture.up, buffers):
        tuning = tune_matvec(own, shard.units * slots * frame.rows, r.caps)
        dispatch = matmul.matvec(
            own, r.caps, first=shard.first, units=shard.units, tuning=tuning, stack=matrix_stacks.pair_stack(slots)
        )
        entries.append(entry(dispatch, bound))
    y = frame.values[node.outputs[0]]
    buffers = {**mixture.extra_buffers[1], **_residual(node, frame), "x": hidden, "chosen": chosen, "y": y}
    for shard, own, bound in shard_products(replace(mixture.last, weighted=True), mixture.down, buffers):
        own = replace(own, k=ExpertSlots.over(shard.format, slots, first.n))
        dispatch = matmul.matvec(
            own,
            r.caps,
            first=shard.first,
            units=shard.units,
            source=ExpertSlots(count=slots, width=first.n),
            tuning=tune_matvec(own, shard.units * frame.rows, r.caps),
            stack=matrix_stacks.branch_stack(slots),
        )
        entries.append(entry(dispatch, bound))
    return entries


def _record_groups(
    r: RowRecorder, node: Node, frame: RecordingFrame, mixture: _Mixture, chosen: str
) -> list[RecordedDispatch]:
    """Many rows: those of each expert together."""
    slots, pairs = mixture.slots, r.most_rows * mixture.slots
    first, last = mixture.first, replace(mixture.last, residual=False, weighted=True)
    cuts = (_tuning_of(r, mixture, first, mixture.up, frame), _tuning_of(r, mixture, last, mixture.down, frame))
    routes = ExpertRoutes(experts=mixture.count, slots=slots, pairs=pairs, each=(_rows_of(cuts[0]), _rows_of(cuts[1])))
    ordered = r.spare(ExpertRoutes.most_bytes(mixture.count, pairs), "rows by expert")
    hidden = r.spare(_pair_bytes(r, slots, first.n), "hidden rows of experts")
    outputs = r.spare(_pair_bytes(r, slots, last.n), "outputs of experts")
    entries = [entry(routes.group(), {"chosen": chosen, "routes": ordered}, control=frame.control)]
    products = ((first, mixture.up, frame.values[node.inputs[0]], hidden), (last, mixture.down, hidden, outputs))
    for number, (shape, matrix, x, y) in enumerate(products):
        buffers = {**mixture.extra_buffers[number], "x": x, "y": y, "routes": ordered}
        before, buffers = _prepare(r, shape, cuts[number], buffers, frame, times=slots if number else 1)
        entries += before
        for shard, own, bound in shard_products(shape, matrix, buffers):
            entries.append(entry(_product(r, own, cuts[number], routes.stack(number), shard), bound))
    collect = routes.collect(width=last.n, residual=node.attrs["residual"])
    bound = {"routes": ordered, "parts": outputs, "y": frame.values[node.outputs[0]], **_residual(node, frame)}
    return [*entries, entry(collect, bound, control=frame.control)]


def _prepare(
    r: RowRecorder,
    shape: MatmulShape,
    tuning: _Tuning,
    buffers: dict[str, str],
    frame: RecordingFrame,
    *,
    times: int,
) -> tuple[list[RecordedDispatch], dict[str, str]]:
    """What a product needs of x, which has `times` rows for each row of the call; and the buffers of the product."""
    if isinstance(tuning, MatrixCut):
        halve, buffers = halved_operand(r, shape, buffers, frame.control, times=times)
        return [halve], buffers
    return row_statistics(r, shape, buffers, frame.control) if isinstance(tuning, GemmTile) else ([], buffers)


def _tuning_of(
    r: RowRecorder, mixture: _Mixture, shape: MatmulShape, matrix: ResidentMatrix, frame: RecordingFrame
) -> _Tuning:
    """Tuning of a product if rows spread evenly over experts: batches, or tiles beyond a few rows of each."""
    pairs = frame.rows * mixture.slots
    each = ceil_div(pairs, mixture.count)
    if meets_halves(r, matrix, shape, each) and pairs <= r.caps.max_groups:
        return matrix_tiles.choose_cut(shape, each, r.caps, matrices=mixture.count, may_split=False)
    if 4 * each <= matmul.most_batched(r.caps):
        return tune_batch(shape, shape.n * min(mixture.count, pairs), r.caps, power_of_two(2 * each))
    return gemm_tiles.choose_tile(shape, each, r.caps, matrices=mixture.count)


def _rows_of(tuning: _Tuning) -> int:
    """Rows of a block."""
    if isinstance(tuning, MatrixCut):
        return tuning.tile.m
    return tuning.m if isinstance(tuning, GemmTile) else tuning.batch


def _product(r: RowRecorder, shape: MatmulShape, tuning: _Tuning, stack: MatrixStack, shard: MatrixShard) -> Dispatch:
    first, units = shard.first, shard.units
    if isinstance(tuning, MatrixCut):
        return matrix_tiles.matrix_gemm(shape, r.caps, tuning, first=first, units=units, stack=stack)
    if isinstance(tuning, GemmTile):
        return gemm_tiles.gemm(shape, r.caps, tuning, first=first, units=units, stack=stack)
    return matmul.matvec(shape, r.caps, first=first, units=units, tuning=tuning, stack=stack)


def _pair_bytes(r: RowRecorder, slots: int, width: int) -> int:
    return 16 * r.most_rows * slots * ceil_div(width, 4)


def _residual(node: Node, frame: RecordingFrame) -> dict[str, str]:
    residual = node.input_by_role("residual")
    return {} if residual is None else {"residual": frame.values[residual]}
