"""A layer as two programs whose data stay on the device, what they compute at least, and what the machine can do."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from benchmarks.suites.layers.cases import LayerCase
from volumetric.base import rng
from volumetric.base._typing import Array
from volumetric.graph import Graph, GraphBuilder, GraphDevice, GraphProgram, differentiate
from volumetric.graph.flops import flops_of
from volumetric.layers import Embedding
from volumetric.layers.emit_scope import GraphTraining, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A program and what it does.

    Attributes
    ----------
    flops : floating-point operations of its products and recurrent steps
    moved : bytes of what it must read and write at least: inputs, weights, results
    """

    program: GraphProgram
    flops: float
    moved: float


def layer_works(case: LayerCase, device: GraphDevice) -> dict[str, Work]:
    """Return the forward pass, and the forward and backward pass together, of a layer. Nothing of size comes back."""
    store = device.store()
    for key, value in values(case).items():
        store.write(key, value)
    return {role: _work(graph, moved, device, store) for role, (graph, moved) in _graphs(case).items()}


def _work(graph: Graph, moved: float, device: GraphDevice, store: Any) -> Work:
    return Work(program=device.compile(graph, store), flops=flops_of(graph), moved=moved)


def values(case: LayerCase) -> dict[str, Array]:
    """Return parameters by name, ``x`` and ``gy``: random, of a size that keeps activations in range."""
    draw = rng.generator(0)
    found: dict[str, Array] = {}
    for param in case.spec.params():
        fan = prod(param.shape[1:]) or 1
        found[f"p/{param.name}"] = (draw.standard_normal(param.shape) / np.sqrt(fan)).astype(np.float32)
    found |= {f"p/{b.name}": np.ones(b.shape, np.float32) for b in case.spec.buffers()}
    if isinstance(case.spec, Embedding):
        found["x"] = draw.integers(0, case.spec.num_embeddings, case.shape).astype(np.int32)
    else:
        found["x"] = draw.standard_normal(case.shape).astype(np.float32)
    found["gy"] = draw.standard_normal(case.spec.output_shape(case.shape)).astype(np.float32)
    return found


def _graphs(case: LayerCase) -> dict[str, tuple[Graph, float]]:
    """Return the graph of each role and the bytes that it must move."""
    found: dict[str, tuple[Graph, float]] = {}
    ids = isinstance(case.spec, Embedding)
    for role in ("forward", "train"):
        work = GraphBuilder()
        x = work.stored_tensor("x", case.shape, "int32" if ids else "float32")
        weights = {p.name: work.stored_tensor(f"p/{p.name}", p.shape) for p in case.spec.params()}
        kept = {b.name: work.stored_tensor(f"p/{b.name}", b.shape) for b in case.spec.buffers()}
        training = None
        if role == "train":
            noise = work.constant(np.array([1, 2], np.int32), "noise") if case.spec.draws else None
            training = GraphTraining(buffers=dict(kept), noise=noise)
        tensors = {**weights, **kept}
        scope = Scope(work=work, param=lambda path, _, of=tensors: of[path], path=case.name, training=training)
        y = scope.emit(case.spec, x)
        outputs, given = [y], [x, *tensors.values()]
        if training is not None:
            gy = work.stored_tensor("gy", work.shape(y))
            grads = differentiate(work, {y: gy}, [*weights.values(), *([] if ids else [x])])
            outputs, given = [y, *grads.values(), *training.buffers.values()], [*given, gy]
        moved = 4.0 * sum(prod(work.shape(i)) for i in (*given, *outputs))
        found[role] = work.finish([_first(work, i) for i in outputs]), moved
    return found


def _first(work: GraphBuilder, x: int) -> int:
    """One number of a tensor: all of it is computed, and hardly anything is copied to the host."""
    shape = work.shape(x)
    return work.slice(x, (0,) * len(shape), (1,) * len(shape))
