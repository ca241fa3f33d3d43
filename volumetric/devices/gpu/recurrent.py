"""Recording of recurrent cells: one product and one launch of the cell for each possible time step of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volumetric.devices.gpu.command_list import RecordedDispatch, entry
from volumetric.devices.gpu.fixed_states import fixed_name
from volumetric.devices.gpu.kernels import matmul, row_predicate
from volumetric.devices.gpu.kernels import recurrence as cells
from volumetric.devices.gpu.kernels.dispatch import ceil_div, power_of_two
from volumetric.devices.gpu.kernels.matmul import MatmulShape, SequenceStates
from volumetric.devices.gpu.weight_buffers import ResidentMatrix
from volumetric.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.devices.gpu.encode import RecordingFrame, RowRecorder


def product_of(r: RowRecorder, node: Node) -> tuple[MatmulShape, ResidentMatrix]:
    """Return the shape of the product of the weights with a state."""
    keys = r.graph.keys_by_role(node)
    matrix = r.weights.matrix((keys["weight.0"],))
    shape = MatmulShape(k=matrix.k, n=matrix.units, format=matrix.format, bias="bias.0" in keys, int8=r.int8)
    return shape, matrix


def recurrence(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    """As many steps as the longest sequence may have; steps beyond the end of a sequence do nothing for it."""
    shape, matrix = product_of(r, node)
    wide = 4 * ceil_div(shape.n, 4)
    states = {name: fixed_name(key) for name, key in r.graph.states(node).items()}
    product = {"x": states["h"], "y": r.spare(4 * wide * r.most_rows, "product of states")}
    bias = r.weights.vector("bias", (r.graph.keys_by_role(node).get("bias.0"), wide))
    product |= {} if bias is None else {"bias": bias}
    values = {"from_x": frame.values[node.inputs[0]], "from_h": product["y"], "y": frame.values[node.outputs[0]]}
    steps = min(frame.rows, r.most_rows) if frame.singles < frame.rows else 1
    predicate = row_predicate.STEPS if steps > 1 else row_predicate.NONE
    entries = []
    for number in range(steps):
        for shard in matrix.shards:
            dispatch = matmul.matvec(
                shape,
                r.caps,
                first=shard.first,
                units=shard.units,
                tuning=_product_tuning(r, shape, shard.units, frame, steps),
                guard=predicate,
                source=SequenceStates(ring=cells.RING, step=number),
            )
            entries.append(entry(dispatch, {**product, **shard.buffers}, control=frame.control))
        cell = cells.cell(node.attrs["cell"], hidden=shape.k, step=number)
        entries.append(entry(cell, {**values, **states}, control=frame.control))
    return entries


def _product_tuning(
    r: RowRecorder, shape: MatmulShape, units: int, frame: RecordingFrame, steps: int
) -> matmul.MatvecTuning:
    """Tuning: only few sequences have several rows."""
    pieces = frame.rows if steps == 1 else max(2, power_of_two(frame.singles + 1))
    return r.cut_matvec(shape, units, pieces)
