"""Nodes of `hyena`: the Fourier transform of few rows is a product with constants."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.layers.program.attention.base import Reading, lowering
from volumetric.layers.program.attention.heads import affine
from volumetric.layers.program.attention.hyena import Hyena, bins, transform_length


@lowering("hyena")
def _hyena(of: Reading) -> int:
    work, p, rule = of.work, of.p, of.rule
    assert isinstance(rule, Hyena)
    _, batch, d = of.size
    count, x = of.pairs.queries, of.values
    if of.pairs.keys != count:
        lead, _, keys, _ = work.shape(x)
        mean = work.constant(bins(count, keys)[None], "bins")
        x = work.reshape(work.gemm(mean, work.reshape(x, (lead * batch, keys, d))), (lead, batch, count, d))
    v, *gates = work.split(affine(work, p, "in.", x), (d,) * (rule.order + 1), 3)
    for i, gate in enumerate(gates):
        opened = work.unary(affine(work, p, f"gates.{i}.", gate), "sigmoid")
        v = _filtered(work, p[f"filters.{i}"], work.binary("mul", v, opened))
    return affine(work, p, "o.", v)


def _filtered(work: GraphBuilder, response: int, x: int) -> int:
    """Emit the circular convolution of ``[E, B, N, d]`` with filters ``[E, d, bins, 2]``."""
    edges, batch, count, d = work.shape(x)
    there, back = transforms(count)
    kept = there.shape[0] // 2
    spectrum = work.gemm(work.constant(there[None], "transform"), work.reshape(x, (edges * batch, count, d)))
    real, imaginary = work.split(work.reshape(spectrum, (edges, batch, 2 * kept, d)), (kept, kept), 2)
    factors = work.permute(work.part(response, 2, 0, kept), (0, 3, 2, 1))  # [E, 2, kept, d]
    by_real, by_imaginary = work.split(factors, (1, 1), 1)
    made = (
        work.binary("sub", work.binary("mul", real, by_real), work.binary("mul", imaginary, by_imaginary)),
        work.add(work.binary("mul", real, by_imaginary), work.binary("mul", imaginary, by_real)),
    )
    whole = work.reshape(work.concat(made, 2), (edges * batch, 2 * kept, d))
    return work.reshape(work.gemm(work.constant(back[None], "inverse"), whole), (edges, batch, count, d))


def transforms(count: int) -> tuple[Array, Array]:
    """Matrices of rfft and irfft for `count` rows.

    Real parts of all frequencies stand before imaginary ones: ``[2 K, N]``, and back ``[N, 2 K]``.
    """
    length = transform_length(count)
    kept = length // 2 + 1
    angle = 2 * np.pi * (np.outer(np.arange(kept), np.arange(count)) % length) / length
    cos, sin = np.cos(angle), np.sin(angle)
    sin[[0, -1]] = 0.0  # neither end has an imaginary part
    twice = np.where(np.isin(np.arange(kept), (0, kept - 1)), 1.0, 2.0) / length
    return np.concatenate((cos, -sin)), np.concatenate((cos.T * twice, -sin.T * twice), axis=1)
