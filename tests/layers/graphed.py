"""A layer alone, by the graph that it writes: interpreted, and differentiated, in the precision of its arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.base import Arrays, Grads
from tests.oracles.training import Training
from volumetric.base._typing import Array, Shape
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.interpret import Interpreter
from volumetric.layers.emit_scope import GraphTraining, Scope
from volumetric.layers.layer_spec import LayerSpec


class Call(NamedTuple):
    """What the gradients of a call are computed from."""

    xs: tuple[Array, ...]
    training: Training | None


class Pass(NamedTuple):
    """What a graph of training depends on beside shapes."""

    learned: tuple[str, ...]
    path: str
    first: int


class LayerGraph:
    """A layer with the methods of an oracle, by its graph. Layers whose rows go on from states are run without them."""

    def __init__(self, spec: LayerSpec) -> None:
        self.spec = spec

    def forward(self, p: Arrays, *xs: Array) -> tuple[Array, Call]:
        """Return the output, and what `vjp` needs."""
        return self._run(p, Call(xs, None))[0], Call(xs, None)

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Call]:
        """Return the output as it is while training, and what `vjp` needs; `training` gets the changes of buffers."""
        call = Call(xs, training)
        y, *changed = self._run(p, call)
        training.changes.update(zip(_pass(call).learned, changed, strict=True))  # pyright: ignore[reportOptionalMemberAccess]
        return y, call

    def vjp(self, p: Arrays, call: Call, gy: Array) -> Grads:
        """Return the gradients of ``sum(gy * y)``."""
        floats = [np.issubdtype(x.dtype, np.floating) for x in call.xs]
        names = [of.name for of in self.spec.params()]
        if not gy.size:
            zeros = tuple(np.zeros_like(x) if real else None for x, real in zip(call.xs, floats, strict=True))
            return Grads(zeros, {name: np.zeros_like(p[name]) for name in names})
        made = self._run(p, call, gy)
        found = [made.pop(0) if real else None for real in floats]
        return Grads(tuple(found), dict(zip(names, made, strict=True)))

    def _run(self, p: Arrays, call: Call, gy: Array | None = None) -> list[Array]:
        inputs = tuple((x.shape, bool(np.issubdtype(x.dtype, np.integer))) for x in call.xs)
        shapes = tuple(p[of.name].shape for of in self.spec.tensors())
        every = [*call.xs, *(p[of.name] for of in self.spec.tensors())]
        kind: Any = next(a.dtype.type for a in every if np.issubdtype(a.dtype, np.floating))
        if call.training is not None:
            every.append(np.array(call.training.noise, np.uint32).view(np.int32))
        emit = _interpreter if _is_hashable(self.spec) else _interpreter.__wrapped__
        of = emit(self.spec, inputs, shapes, _pass(call), None if gy is None else gy.shape, kind)
        return of.run(every if gy is None else [*every, gy], {})


def graphed(spec: LayerSpec) -> LayerGraph:
    """Return a layer by its graph."""
    return LayerGraph(spec)


def _pass(call: Call) -> Pass | None:
    of = call.training
    return None if of is None else Pass(tuple(sorted(of.learned)), of.path, of.first)


def _is_hashable(spec: LayerSpec) -> bool:
    """Whether graphs of a layer can be kept: one of somebody's own may have a list as a field."""
    try:
        hash(spec)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=512)
def _interpreter(
    spec: LayerSpec,
    inputs: tuple[tuple[Shape, bool], ...],
    shapes: tuple[Shape, ...],
    of: Pass | None,
    gy: Shape | None,
    dtype: Any,
) -> Interpreter:
    """Return the graph of a layer for inputs of some shapes, or of its gradients where it has one of its output."""
    work = GraphBuilder()
    xs = [work.input(f"x{i}", shape, "int32" if ids else "float32") for i, (shape, ids) in enumerate(inputs)]
    params = {of.name: work.input(of.name, shape) for of, shape in zip(spec.tensors(), shapes, strict=True)}
    training, path = None, spec.kind
    if of is not None:
        noise, path = work.input("noise", (2,), "int32"), of.path
        training = GraphTraining(buffers={name: params[name] for name in of.learned}, noise=noise, first=of.first)
    y = Scope(work=work, param=lambda name, _: params[name], path=path, training=training).emit(spec, *xs)
    if gy is None:
        changed = [] if training is None or of is None else [training.buffers[name] for name in of.learned]
        return Interpreter(work.finish([y, *changed]), dtype)
    real = [x for x, (_, ids) in zip(xs, inputs, strict=True) if not ids]
    wanted = [*real, *(params[of.name] for of in spec.params())]
    seeds = {y: work.input("gy", gy)} | {i: work.scalar(1.0) for i in (training.penalties if training else ())}
    slopes = differentiate(work, seeds, wanted)
    return Interpreter(work.finish([slopes[i] if i in slopes else work.zeros(work.shape(i)) for i in wanted]), dtype)
