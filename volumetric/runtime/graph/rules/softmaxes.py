"""Rules of the layers that turn logits along an axis into probabilities."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.layers import (
    AdaptiveSoftmax,
    Entmax,
    GridSoftmax,
    GumbelSoftmax,
    HierarchicalSoftmax,
    LayerSpec,
    MaskedSoftmax,
    MixtureSoftmax,
    Softmax,
    Sparsemax,
)
from volumetric.layers.softmax import AxisSoftmax
from volumetric.runtime.graph.rules.base import Scope, rule


@rule(
    "softmax",
    "masked_softmax",
    "sparsemax",
    "entmax",
    "grid_softmax",
    "hierarchical_softmax",
    "adaptive_softmax",
    "mixture_softmax",
)
def _along_axis(scope: Scope, spec: AxisSoftmax, x: int) -> int:
    """Bring the axis to the end, divide by the temperature, take the probabilities of rows, and bring it back."""
    work = scope.work
    count = len(work.shape(x))
    axis = spec.axis % count
    if spec.kind == "softmax" and axis == 1 and work.takes("scaled_softmax", (x,)):
        return work.emit("scaled_softmax", (x,), temperature=float(spec.temperature))[0]
    there = (*(i for i in range(count) if i != axis), axis)
    z = work.affine(work.permute(x, there), 1 / spec.temperature)
    *lead, size = work.shape(z)
    y = _probabilities(work, spec, work.reshape(z, (prod(lead), size)))
    y = work.reshape(y, (*lead, work.shape(y)[1]))
    return work.permute(y, tuple(there.index(i) for i in range(count)))


@rule("gumbel_softmax")
def _gumbel(scope: Scope, spec: GumbelSoftmax, x: int) -> int:
    """Bring the rows of a sequence to the front, with all that stands at a position behind it, and add the noise."""
    work, shape = scope.work, scope.work.shape(x)
    if scope.resumes and len(shape) == 2:
        return _along_axis(scope, spec, work.emit("gumbel", (x, work.positions()), seed=spec.seed)[0])
    sequences = 1 if scope.resumes else scope.sequences
    whole = (sequences, *shape) if scope.resumes else (sequences, shape[0] // max(sequences, 1), *shape[1:])
    axes = len(whole)
    there = (0, axes - 2, *range(1, axes - 2), axes - 1)
    turned = work.permute(work.reshape(x, whole), there)
    ahead = work.shape(turned)
    rows = ahead[1]
    places = work.constant(np.tile(np.arange(rows, dtype=np.int32), sequences), "places")
    flat = work.reshape(turned, (sequences * rows, prod(ahead[2:])))
    noisy = work.reshape(work.emit("gumbel", (flat, places), seed=spec.seed)[0], ahead)
    back = work.permute(noisy, tuple(there.index(i) for i in range(axes)))
    return _along_axis(scope, spec, work.reshape(back, shape))


def _probabilities(work: GraphBuilder, spec: LayerSpec, z: int) -> int:
    """Emit the probabilities of each row of `z`."""
    if isinstance(spec, Sparsemax):
        return work.entmax(z, 2.0)
    if isinstance(spec, Entmax):
        return work.entmax(z, spec.alpha)
    if isinstance(spec, MaskedSoftmax):
        mask = np.array([spec.mask], np.float64)
        return work.softmax(z if mask.all() else work.binary("mask", z, work.constant(mask, "mask")))
    if isinstance(spec, Softmax):
        return work.softmax(z)
    if isinstance(spec, GridSoftmax):
        return _parts(work, z, work.shape(z)[0] * spec.rows, spec.cols)
    if isinstance(spec, HierarchicalSoftmax):
        return _hierarchical(work, spec, z)
    if isinstance(spec, AdaptiveSoftmax):
        return _adaptive(work, spec, z)
    if isinstance(spec, MixtureSoftmax):
        return _mixture(work, spec, z)
    raise NotImplementedError(spec.kind)


def _parts(work: GraphBuilder, z: int, rows: int, width: int) -> int:
    """Softmax of the parts of each row, in the shape of `z`."""
    return work.reshape(work.softmax(work.reshape(z, (rows, width))), work.shape(z))


def _hierarchical(work: GraphBuilder, spec: HierarchicalSoftmax, z: int) -> int:
    rows = work.shape(z)[0]
    path: int | None = None
    for level, nodes, branches in zip(work.split(z, spec.nodes, 1), spec.nodes, spec.levels, strict=True):
        parents = rows * nodes // branches
        choice = work.softmax(work.reshape(level, (parents, branches)))
        if path is not None:
            choice = work.binary("mul", work.reshape(path, (parents, 1)), choice)
        path = work.reshape(choice, (rows, nodes))
    return z if path is None else path


def _adaptive(work: GraphBuilder, spec: AdaptiveSoftmax, z: int) -> int:
    direct = spec.cutoffs[0]
    sizes = [b - a for a, b in pairwise((*spec.cutoffs, spec.n_classes))]
    head, *tails = (work.softmax(part) for part in work.split(z, [direct + len(sizes), *sizes], 1))
    chosen = [work.part(head, 1, direct + i, direct + i + 1) for i in range(len(sizes))]
    products = [work.binary("mul", c, tail) for c, tail in zip(chosen, tails, strict=True)]
    return work.concat((work.part(head, 1, 0, direct), *products), 1)


def _mixture(work: GraphBuilder, spec: MixtureSoftmax, z: int) -> int:
    rows, size = work.shape(z)
    outcomes = spec.outcomes(size)
    logits, rest = work.split(z, [spec.components, spec.components * outcomes], 1)
    weights = work.reshape(work.softmax(logits), (rows, spec.components, 1))
    parts = work.reshape(_parts(work, rest, rows * spec.components, outcomes), (rows, spec.components, outcomes))
    return work.reshape(work.reduce(work.binary("mul", weights, parts), "sum", (1,)), (rows, outcomes))
