"""A layer in NumPy by the graph that it writes: interpreted, and differentiated for its gradients."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.interpret import interpret
from volumetric.graph.ops import Graph
from volumetric.layers.base import Arrays, Grads, LayerSpec, Saved
from volumetric.layers.scope import GraphTraining, Scope
from volumetric.layers.training import Training


def forward(spec: LayerSpec, p: Arrays, xs: tuple[Array, ...]) -> tuple[Array, Saved]:
    """Return what `LayerSpec.forward` does, for a layer without states: its output, and its inputs for `backward`."""
    graph = _graph(spec, p, xs)
    [y] = interpret(graph, [*xs, *_params(spec, p)], {}, _precision(p, xs))
    return y, {"xs": xs}


def backward(spec: LayerSpec, p: Arrays, xs: tuple[Array, ...], gy: Array) -> Grads:
    """Return the gradients of ``sum(gy * y)`` with respect to the inputs and parameters of such a layer."""
    floats = [np.issubdtype(x.dtype, np.floating) for x in xs]
    names = [of.name for of in spec.params()]
    if not gy.size:
        zeros = tuple(np.zeros_like(x) if real else None for x, real in zip(xs, floats, strict=True))
        return Grads(zeros, {name: np.zeros_like(p[name]) for name in names})
    graph = _graph(spec, p, xs, gy.shape)
    made = interpret(graph, [*xs, *_params(spec, p), gy], {}, _precision(p, xs))
    found = [made.pop(0) if real else None for real in floats]
    return Grads(tuple(found), dict(zip(names, made, strict=True)))


def _params(spec: LayerSpec, p: Arrays) -> list[Array]:
    return [p[of.name] for of in spec.tensors()]


def _precision(p: Arrays, xs: tuple[Array, ...]) -> Any:
    return next(a.dtype.type for a in (*xs, *p.values()) if np.issubdtype(a.dtype, np.floating))


def _graph(spec: LayerSpec, p: Arrays, xs: tuple[Array, ...], gy: Shape | None = None) -> Graph:
    inputs = tuple((x.shape, bool(np.issubdtype(x.dtype, np.integer))) for x in xs)
    shapes = tuple(p[of.name].shape for of in spec.tensors())
    emit = _emitted if _is_hashable(spec) else _emitted.__wrapped__
    return emit(spec, inputs, shapes, gy)


def _is_hashable(spec: LayerSpec) -> bool:
    """Whether graphs of a layer can be kept: one of somebody's own may have a list as a field."""
    try:
        hash(spec)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=512)
def _emitted(
    spec: LayerSpec, inputs: tuple[tuple[Shape, bool], ...], shapes: tuple[Shape, ...], gy: Shape | None
) -> Graph:
    """Return the graph of a layer for inputs of some shapes, or of its gradients where it has one of its output."""
    work = GraphBuilder()
    xs = [work.input(f"x{i}", shape, "int32" if ids else "float32") for i, (shape, ids) in enumerate(inputs)]
    params = {of.name: work.input(of.name, shape) for of, shape in zip(spec.tensors(), shapes, strict=True)}
    y = Scope(work=work, param=lambda name, _: params[name], path=spec.kind).emit(spec, *xs)
    if gy is None:
        return work.finish([y])
    real = [x for x, (_, ids) in zip(xs, inputs, strict=True) if not ids]
    wanted = [*real, *(params[of.name] for of in spec.params())]
    slopes = differentiate(work, {y: work.input("gy", gy)}, wanted)
    return work.finish([slopes[i] if i in slopes else work.zeros(work.shape(i)) for i in wanted])


def gradients(spec: LayerSpec, p: Arrays, saved: Saved, gy: Array) -> Grads:
    """Return what `LayerSpec.vjp` does.

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
