"""`hyena`: long convolutions in the frequency domain, and its nodes."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.dense import affine_params
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention.head_ops import affine, square_maps
from volumetric.program.layer.attention.rule_base import (
    Attention,
    AttentionInputs,
    check_positive,
    lowering,
    register_rule,
)


@register_rule("hyena")
class HyenaAttention(Attention):
    """``a = W_o v + b_o`` after `order` gated convolutions of ``(v, x_1, …) = W_in x + b`` (Poli et al. 2023).

    x is the source resampled to N rows: row i is the mean of rows ``⌊i M / N⌋ … ⌈(i + 1) M / N⌉ - 1``. Convolutions are
    products of frequencies of length L, the smallest power of two ≥ max(N, 2): ``v ← irfft(rfft(v · σ(G_i x_i + b), L)
    · F_i)`` cut to N rows, F_i complex for each feature. It has no heads.

    Attributes
    ----------
    order : number of convolutions
    length : L of the filters; 0: that of the edge. Longer filters use only their lowest frequencies
    """

    whole = True

    order: int = 2
    length: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "order")
        if not isinstance(self.length, int) or isinstance(self.length, bool) or self.length < 0:
            raise SpecError(f"hyena: length must be a whole number from 0 on, got {self.length!r}")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        length = self.length or transform_length(queries)
        if length < transform_length(queries):
            raise SpecError(
                f"hyena: filters of length {length} are too short for {queries} positions",
                hint=f"at least {transform_length(queries)}",
            )
        bins = length // 2 + 1
        return (
            *affine_params("in.", (self.order + 1) * d, d, bias=True),
            *(ParamSpec(name=f"filters.{i}", shape=(d, bins, 2), init="normal") for i in range(self.order)),
            *square_maps(d, *(f"gates.{i}." for i in range(self.order)), "o."),
        )


def transform_length(count: int) -> int:
    """Return the smallest power of two that is at least `count` and 2."""
    return max(2, 1 << (count - 1).bit_length())


def bins(queries: int, keys: int) -> Array:
    """Return the weights that resample `keys` rows to `queries`: ``[N, M]``, the mean of overlapping ranges."""
    i, j = np.arange(queries)[:, None], np.arange(keys)
    inside = (j >= i * keys // queries) & (j < -(-(i + 1) * keys // queries))
    return inside / inside.sum(1, keepdims=True)


@lowering("hyena")
def _hyena(of: AttentionInputs) -> int:
    work, p, rule = of.work, of.p, of.rule
    assert isinstance(rule, HyenaAttention)
    _, batch, d = of.size
    count, x = of.pairs.queries, of.values
    if of.pairs.keys != count:
        lead, _, keys, _ = work.shape(x)
        mean = work.constant(bins(count, keys)[None], "bins")
        x = work.reshape(work.gemm(mean, work.reshape(x, (lead * batch, keys, d))), (lead, batch, count, d))
    v, *gates = work.split(affine(work, p, "in.", x), (d,) * (rule.order + 1), 3)
    for i, gate in enumerate(gates):
        opened = work.unary(affine(work, p, f"gates.{i}.", gate), "sigmoid")
        v = _filter_rows(work, p[f"filters.{i}"], work.binary("mul", v, opened))
    return affine(work, p, "o.", v)


def _filter_rows(work: GraphBuilder, response: int, x: int) -> int:
    """Emit the circular convolution of ``[E, B, N, d]`` with filters ``[E, d, bins, 2]``."""
    edges, batch, count, d = work.shape(x)
    there, back = transforms(count)
    bin_count = there.shape[0] // 2
    spectrum = work.gemm(work.constant(there[None], "transform"), work.reshape(x, (edges * batch, count, d)))
    real, imaginary = work.split(work.reshape(spectrum, (edges, batch, 2 * bin_count, d)), (bin_count, bin_count), 2)
    factors = work.permute(work.part(response, 2, 0, bin_count), (0, 3, 2, 1))  # [E, 2, bins, d]
    by_real, by_imaginary = work.split(factors, (1, 1), 1)
    products = (
        work.binary("sub", work.binary("mul", real, by_real), work.binary("mul", imaginary, by_imaginary)),
        work.add(work.binary("mul", real, by_imaginary), work.binary("mul", imaginary, by_real)),
    )
    whole = work.reshape(work.concat(products, 2), (edges * batch, 2 * bin_count, d))
    return work.reshape(work.gemm(work.constant(back[None], "inverse"), whole), (edges, batch, count, d))


def transforms(count: int) -> tuple[Array, Array]:
    """Return the matrices of rfft and irfft for `count` rows.

    Real parts of all frequencies come first, then imaginary ones: ``[2 K, N]``, and back ``[N, 2 K]``.
    """
    length = transform_length(count)
    bin_count = length // 2 + 1
    angle = 2 * np.pi * (np.outer(np.arange(bin_count), np.arange(count)) % length) / length
    cos, sin = np.cos(angle), np.sin(angle)
    sin[[0, -1]] = 0.0  # neither end has an imaginary part
    twice = np.where(np.isin(np.arange(bin_count), (0, bin_count - 1)), 1.0, 2.0) / length
    return np.concatenate((cos, -sin)), np.concatenate((cos.T * twice, -sin.T * twice), axis=1)
