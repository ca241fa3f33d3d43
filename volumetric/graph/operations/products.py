"""The batched matrix product with groups, and its gradients, which are products with groups too.

``gemm``        a [Ga,M,K], b [Gb,K,N] [, bias [N] or [Gc,N]] → c [Gc,M,N]. ``trans_a``: a is [Ga,K,M]; ``trans_b``: b
                is [Gb,N,K]. Groups are cyclic: with G = max(Ga, Gb, Gc), which Ga, Gb and Gc divide,
                ``c[j] = act(Σ_{g ≡ j mod Gc} op(a[g mod Ga]) op(b[g mod Gb]) + bias)``, g rising. ``groups`` = Gc.
                So Gb = 1 shares the right operand, Ga = 1 shares the left one, Gc = 1 sums over all groups; the
                gradient of a gemm is a gemm. ``activation``: name, ``"linear"`` unless a pass fused one. K = 0, Ga = 0
                or Gb = 0 gives act(bias), with any Gc. Operands always have 3 axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, check_activation
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats, widest
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("gemm", inputs)
    check_activation(attrs["activation"])
    ga, *a = axes_of("gemm", inputs[0], 3)
    gb, *b = axes_of("gemm", inputs[1], 3)
    m, k = a[::-1] if attrs["trans_a"] else a
    other, n = b[::-1] if attrs["trans_b"] else b
    require(k == other, "gemm", f"cannot multiply {m}×{k} by {other}×{n}")
    gc = attrs["groups"]
    most = widest(ga, gb, gc)
    fits = 0 in (ga, gb) or all(g and most % g == 0 for g in (ga, gb, gc))
    require(fits, "gemm", f"{ga} and {gb} groups cannot give {gc} groups")
    if len(inputs) == 3:
        fits = inputs[2].shape in ((n,), (gc, n))
        require(fits, "gemm", f"a bias of shape {list(inputs[2].shape)} does not match {gc} groups of {n} columns")
    return [float_output("product", gc, m, n)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    a = inputs[0].swapaxes(1, 2) if attrs["trans_a"] else inputs[0]
    b = inputs[1].swapaxes(1, 2) if attrs["trans_b"] else inputs[1]
    gc = attrs["groups"]
    c = np.zeros((gc, a.shape[1], b.shape[2]), a.dtype)
    if gc and {len(a), len(b)} <= {1, gc}:
        c += a @ b
    elif gc and len(a) and len(b):
        for g in range(max(len(a), len(b), gc)):
            c[g % gc] += a[g % len(a)] @ b[g % len(b)]
    if len(inputs) == 3:
        c = c + (inputs[2] if inputs[2].ndim == 1 else inputs[2][:, None])
    return [activate(attrs["activation"], c)]


def _vjp(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    a, b, *bias = node.inputs
    ga, gb = work.shape(a)[0], work.shape(b)[0]
    ta, tb = node.attrs["trans_a"], node.attrs["trans_b"]
    if node.attrs["activation"] != "linear":
        pre = work.emit("gemm", node.inputs, **{**node.attrs, "activation": "linear"})[0]
        g = work.unary_grad(g, pre, node.attrs["activation"])
    g_a = work.gemm(b, g, trans_a=tb, trans_b=True, groups=ga) if ta else work.gemm(g, b, trans_b=not tb, groups=ga)
    g_b = work.gemm(g, a, trans_a=True, trans_b=ta, groups=gb) if tb else work.gemm(a, g, trans_a=not ta, groups=gb)
    shared = bool(bias) and len(work.shape(bias[0])) == 1
    g_bias = [work.reshape(work.reduce(g, "sum", (0, 1) if shared else (1,)), work.shape(i)) for i in bias]
    return [g_a, g_b, *g_bias]


declare("gemm", _infer, _run, _vjp)
