"""`rotate_scan`: a linear recurrence that rotates and scales pairs of elements, forward or backward in time.

``rotate_scan``     u [B,T,2F], g [F], φ [F], s0 [B,2F] [, keep [B,T]] → s [B,T,2F]: ``s[t] = keep[t] R s[t-1] + u[t]``
                    from ``s[-1] = s0`` on, with R = [[g, -φ], [φ, g]] for the pairs (i, i + F). ``reverse``: without
                    s0, ``s[t] = keep[t+1] Rᵀ s[t+1] + u[t]`` from ``s[T-1] = u[T-1]`` on. ``keep``: whether it is
                    present; if it is 0 nothing passes, not even NaN. It has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def rotate_scan(work: GraphBuilder, u: int, g: int, phi: int, start: int, keep: int | None = None) -> int:
    """Emit ``s[t] = keep[t] · R s[t - 1] + u[t]`` with ``R = [[g, -φ], [φ, g]]`` from the first step on.

    Parameters
    ----------
    u : ``[B, T, 2 F]``, the first parts of all pairs before the second ones
    g, phi : ``[F]``
    start : ``[B, 2 F]``, s before the first step
    keep : ``[B, T]``, 0 for a step that ignores those before it
    """
    inputs = (u, g, phi, start) if keep is None else (u, g, phi, start, keep)
    return work.emit("rotate_scan", inputs, reverse=False, keep=keep is not None)[0]


def rotate_scan_back(work: GraphBuilder, u: int, g: int, phi: int, keep: int | None) -> int:
    """Emit ``s[t] = keep[t + 1] · Rᵀ s[t + 1] + u[t]`` from the last step on."""
    inputs = (u, g, phi) if keep is None else (u, g, phi, keep)
    return work.emit("rotate_scan", inputs, reverse=True, keep=keep is not None)[0]


def rotate_pairs(s: Array, g: Array, phi: Array) -> Array:
    """``R s`` with ``R = [[g, -φ], [φ, g]]`` for ``[…, 2 F]``, the first parts of all pairs before the second ones."""
    a, b = np.split(s, 2, axis=-1)
    return np.concatenate([g * a - phi * b, phi * a + g * b], axis=-1)


def run_rotate_scan(u: Array, g: Array, phi: Array, start: Array, keep: Array | None = None) -> Array:
    """``s[t] = keep[t] · R s[t - 1] + u[t]`` over axis 1 of ``[B, T, 2 F]``, with ``s[-1] = start``.

    If ``keep [B, T]`` is 0 nothing of the previous step remains, not even NaN.
    """
    s = np.empty_like(u)
    state = start
    for t in range(u.shape[1]):
        passed = rotate_pairs(state, g, phi)
        if keep is not None:
            passed = np.where(keep[:, t, None] == 0, 0, passed * keep[:, t, None])
        state = s[:, t] = passed + u[:, t]
    return s


def run_rotate_scan_back(u: Array, g: Array, phi: Array, keep: Array | None = None) -> Array:
    """``s[t] = keep[t + 1] · Rᵀ s[t + 1] + u[t]`` over axis 1, with ``s[T - 1] = u[T - 1]``."""
    later_keep = None if keep is None else np.concatenate([keep[:, 1:], np.zeros_like(keep[:, :1])], 1)[:, ::-1]
    return run_rotate_scan(u[:, ::-1], g, -phi, np.zeros_like(u[:, 0]), later_keep)[:, ::-1] if u.shape[1] else u


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("rotate_scan", inputs)
    expected = 4 - attrs["reverse"] + attrs["keep"]
    require(len(inputs) == expected, "rotate_scan", f"takes {expected} tensors, got {len(inputs)}")
    u, g, phi, *rest = inputs
    batch, length, wide = axes_of("rotate_scan", u, 3)
    fits = wide == 2 * g.size and g.shape == phi.shape == (g.size,)
    require(fits, "rotate_scan", "g and phi need an element for each pair")
    if attrs["keep"]:
        require(rest.pop().shape == (batch, length), "rotate_scan", "keep needs an element for each step")
    require(all(t.shape == (batch, wide) for t in rest), "rotate_scan", "the initial state has a wrong shape")
    return [float_output("turned", batch, length, wide)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    u, g, phi, *rest = inputs
    keep = rest.pop() if attrs["keep"] else None
    if attrs["reverse"]:
        return [np.ascontiguousarray(run_rotate_scan_back(u, g, phi, keep))]
    return [run_rotate_scan(u, g, phi, rest[0], keep)]


def _vjp(work: GraphBuilder, node: Node, g_out: int) -> Sequence[int | None]:
    """Emit the gradients of u, g, phi and the initial state by a scan in the other direction; `keep` has none."""
    u, g, phi, *rest = node.inputs
    keep, reverse = rest[-1] if node.attrs["keep"] else None, node.attrs["reverse"]
    batch, length, wide = work.shape(u)
    y = node.outputs[0]
    if length == 0:
        return [g_out, *[None] * (len(node.inputs) - 1)]
    width = wide // 2
    start = work.zeros((batch, wide)) if reverse else rest[0]
    p = rotate_scan(work, g_out, g, phi, start, keep) if reverse else rotate_scan_back(work, g_out, g, phi, keep)
    # The rotation of a step multiplies the previous value of the scan: here p of the step before, and y of this step.
    behind, ahead = (p, y) if reverse else (y, p)
    before = work.reshape(start, (batch, 1, wide))
    if length > 1:
        before = work.concat((before, work.part(behind, 1, 0, length - 1)), 1)
    if keep is not None:
        before = work.binary("mul_nonzero", before, work.reshape(keep, (batch, length, 1)))
    (c1, c2), (p1, p2) = (work.split(of, (width, width), 2) for of in (before, ahead))

    def sum_of_products(name: str, a: int, b: int, c: int, d: int) -> int:
        both = work.binary(name, work.binary("mul", a, b), work.binary("mul", c, d))
        return work.reshape(work.reduce(both, "sum", (0, 1)), (width,))

    gradients = [p, sum_of_products("add", p1, c1, p2, c2), sum_of_products("sub", p2, c1, p1, c2)]
    if not reverse:
        gradients.append(_start_grad(work, p, g, phi, keep))
    return [*gradients, *([] if keep is None else [None])]


def _start_grad(work: GraphBuilder, p: int, g: int, phi: int, keep: int | None) -> int:
    """Emit ``keep[0] · Rᵀ p[0]``."""
    batch, _, wide = work.shape(p)
    width = wide // 2
    first = work.reshape(work.part(p, 1, 0, 1), (batch, wide))
    a, b = work.split(first, (width, width), 1)
    parts = (
        work.add(work.binary("mul", a, g), work.binary("mul", b, phi)),
        work.binary("sub", work.binary("mul", b, g), work.binary("mul", a, phi)),
    )
    turned = work.concat(parts, 1)
    return turned if keep is None else work.binary("mul_nonzero", turned, work.part(keep, 1, 0, 1))


declare("rotate_scan", _infer, _run, _vjp)
