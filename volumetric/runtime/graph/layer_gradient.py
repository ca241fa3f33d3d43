"""Gradients of a layer in NumPy, by its rule: the graph of a call, differentiated and interpreted."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.layers import LayerSpec
from volumetric.layers.base import Arrays, Grads, Saved
from volumetric.runtime.graph.build import GraphBuilder
from volumetric.runtime.graph.differentiate import differentiate
from volumetric.runtime.graph.interpret import interpret
from volumetric.runtime.graph.rules import Scope


def gradients(spec: LayerSpec, p: Arrays, saved: Saved, gy: Array) -> Grads:
    """Return what `LayerSpec.vjp` does.

    Parameters
    ----------
    saved : of the call: its rows `x`, how many `streams`, the `states` that they found, ``[streams, …]`` by name, and
        `kept`, ``[streams, T]`` of 0 where a stream begins anew with a row, or None
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

    scope = Scope(work=work, param=param, path="layer", sequences=streams, resumes=True, resets=resets, states=found)
    y = scope.emit(spec, rows)
    seed = given("gy", gy.reshape(-1, gy.shape[-1]))
    slopes = differentiate(work, {y: seed}, [rows, *params.values()])
    wanted = {name: i for name, i in {"x": rows, **params}.items() if i in slopes}
    made = interpret(work.finish([slopes[i] for i in wanted.values()]), values, {}, x.dtype.type)
    by_name = dict(zip(wanted, made, strict=True))
    gx = by_name["x"].reshape(x.shape) if "x" in by_name else np.zeros_like(x)
    return Grads((gx,), {name: by_name.get(name, np.zeros_like(value)) for name, value in p.items()})
