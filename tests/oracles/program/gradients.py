"""Gradients of programs: those of the graph, in the precision of a call; differences of the oracle check them."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Saved
from tests.oracles.training import Training
from volumetric.base._typing import Array, Shape
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.interpret import interpret
from volumetric.layers import LayerSpec
from volumetric.layers.emit_scope import GraphTraining, Scope


def gradients(spec: LayerSpec, p: Arrays, saved: Saved, gy: Array) -> Grads:
    """Return what `Oracle.vjp` does.

    Parameters
    ----------
    saved : of the call: its rows `x`, how many `streams`, the `states` that they found, ``[streams, …]`` by name,
        `kept`, ``[streams, T]`` of 0 where a stream begins anew with a row, or None, and, if it was one of training,
        that as `training`
    """
    x, streams, kept, states = saved["x"], saved["streams"], saved["kept"], saved["states"]
    if not gy.size:
        return Grads((np.zeros_like(x),), {name: np.zeros_like(value) for name, value in p.items()})
    work, values = GraphBuilder(), list[Array]()

    def given(name: str, value: Array) -> int:
        values.append(value)
        return work.input(name, value.shape)

    rows = given("x", x.reshape(-1, x.shape[-1]))
    params = {name: given(name, value) for name, value in p.items()}
    found = {f"layer/{name}": given(name, value) for name, value in states.items()}
    resets = None if kept is None else given("resets", (1 - kept).astype(x.dtype))

    def param(name: str, shape: Shape) -> int:
        return params[name]

    of: Training | None = saved.get("training")
    training, path = None, "layer"
    if of is not None:
        key = np.array(of.noise, np.uint32).view(np.int32)
        training, path = GraphTraining(buffers={}, noise=work.constant(key, "noise"), first=of.first), of.path
        found = {f"{path}/{name.removeprefix('layer/')}": i for name, i in found.items()}
    scope = Scope(
        work=work,
        param=param,
        path=path,
        sequences=streams,
        resumes=True,
        resets=resets,
        states=found,
        training=training,
    )
    y = scope.emit(spec, rows)
    seeds = {y: given("gy", gy.reshape(-1, gy.shape[-1]))}
    seeds |= {} if training is None else {i: work.scalar(1.0) for i in training.penalties}
    slopes = differentiate(work, seeds, [rows, *params.values()])
    wanted = {name: i for name, i in {"x": rows, **params}.items() if i in slopes}
    made = interpret(work.finish([slopes[i] for i in wanted.values()]), values, {}, x.dtype.type)
    by_name = dict(zip(wanted, made, strict=True))
    gx = by_name["x"].reshape(x.shape) if "x" in by_name else np.zeros_like(x)
    return Grads((gx,), {name: by_name.get(name, np.zeros_like(value)) for name, value in p.items()})
