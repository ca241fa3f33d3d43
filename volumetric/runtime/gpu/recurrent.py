"""Recording of recurrent cells: one product and one launch of the cell for each step of time that a call may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volumetric.kernels.gpu import guards, matmul, recurrence
from volumetric.kernels.gpu.dispatch import ceil_div, power_of_two
from volumetric.kernels.gpu.matmul import MatmulShape, PieceStates
from volumetric.runtime.gpu.context import Call
from volumetric.runtime.gpu.residency import Matrix
from volumetric.runtime.plan import Step

if TYPE_CHECKING:
    from volumetric.runtime.gpu.record import Frame, Recorder


def recurrent_product(r: Recorder, step: Step) -> tuple[MatmulShape, Matrix]:
    """The product of the weights with a state."""
    matrix = r.weights.matrix((step.params["weight.0"],))
    shape = MatmulShape(
        k=matrix.k, n=matrix.units, format=matrix.format, bias="bias.0" in step.params, int8=r.rounds_to_int8
    )
    return shape, matrix


def record_recurrence(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    """Bind as many steps as the longest piece may have; those beyond the end of a piece do nothing for it."""
    shape, matrix = recurrent_product(r, step)
    wide = 4 * ceil_div(shape.n, 4)
    states = {name: r.fixed.buffers[key] for name, key in step.states.items()}
    product = {"x": states["h"], "y": r.spare(4 * wide * r.most_rows)}
    bias = r.weights.vector("bias", (step.params.get("bias.0"), wide))
    product |= {} if bias is None else {"bias": bias}
    values = {"from_x": frame.values[step.inputs[0]], "from_h": product["y"], "y": frame.values[step.outputs[0]]}
    steps = min(frame.rows, r.most_rows) if frame.singles < frame.rows else 1
    guard = guards.STEPS if steps > 1 else guards.NONE
    calls = []
    for number in range(steps):
        for shard in matrix.shards:
            dispatch = matmul.matvec(
                shape,
                r.caps,
                first=shard.first,
                units=shard.units,
                tuning=_cut(r, shape, shard.units, frame, steps),
                guard=guard,
                source=PieceStates(ring=recurrence.RING, step=number),
            )
            calls.append(r.bind(dispatch, frame, {**product, **shard.buffers}))
        cell = recurrence.cell(step.attrs["cell"], hidden=shape.k, step=number)
        calls.append(r.bind(cell, frame, {**values, **states}))
    return calls


def _cut(r: Recorder, shape: MatmulShape, units: int, frame: Frame, steps: int) -> matmul.MatvecTuning:
    """Where pieces have several rows there are few of them beside the singles."""
    pieces = frame.rows if steps == 1 else max(2, power_of_two(frame.singles + 1))
    return r.cut_matvec(shape, units, pieces)
