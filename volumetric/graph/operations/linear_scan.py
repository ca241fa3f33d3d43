"""`linear_scan`: a linear recurrence with a factor for each element and step, forward or backward in time.

``linear_scan``     u [B,T,F], a [B,T,F] or [F], s0 [B,F] [, keep [B,T]] → s [B,T,F]:
                    ``s[t] = keep[t] a[t] s[t-1] + u[t]`` from ``s[-1] = s0`` on. ``reverse``: without s0,
                    ``s[t] = keep[t+1] a[t+1] s[t+1] + u[t]`` from ``s[T-1] = u[T-1]`` on. ``keep``: whether it is
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


def linear_scan(work: GraphBuilder, u: int, a: int, start: int, keep: int | None = None) -> int:
    """Emit ``s[t] = keep[t] · a[t] ⊙ s[t - 1] + u[t]`` from the first step on.

    Parameters
    ----------
    u : ``[B, T, F]``
    a : ``[B, T, F]`` or ``[F]``
    start : ``[B, F]``, s before the first step
    keep : ``[B, T]``, 0 for a step that ignores those before it
    """
    inputs = (u, a, start) if keep is None else (u, a, start, keep)
    return work.emit("linear_scan", inputs, reverse=False, keep=keep is not None)[0]


def linear_scan_back(work: GraphBuilder, u: int, a: int, keep: int | None = None) -> int:
    """Emit ``s[t] = keep[t + 1] · a[t + 1] ⊙ s[t + 1] + u[t]`` from the last step on."""
    inputs = (u, a) if keep is None else (u, a, keep)
    return work.emit("linear_scan", inputs, reverse=True, keep=keep is not None)[0]


def run_linear_scan(u: Array, a: Array, start: Array | None = None, keep: Array | None = None) -> Array:
    """``s[t] = keep[t] · a[t] ⊙ s[t - 1] + u[t]`` over axis 1, with ``s[-1] = start``, or zeros.

    Parameters
    ----------
    u : ``[B, T, …]``
    a : the same, or broadcast to it
    start : ``[B, …]``
    keep : ``[B, T]``; if it is 0 nothing of the previous step remains, not even NaN
    """
    s = np.empty_like(u)
    a = np.broadcast_to(a, u.shape)
    state = np.zeros_like(u[:, 0]) if start is None and u.shape[1] else start
    for t in range(u.shape[1]):
        passed = a[:, t] * state
        if keep is not None:
            now = keep[:, t].reshape(-1, *(1,) * (passed.ndim - 1))
            passed = np.where(now == 0, 0, passed * now)
        state = s[:, t] = passed + u[:, t]
    return s


def run_linear_scan_back(u: Array, a: Array, keep: Array | None = None) -> Array:
    """``s[t] = keep[t + 1] · a[t + 1] ⊙ s[t + 1] + u[t]`` over axis 1, with ``s[T - 1] = u[T - 1]``."""
    a = np.broadcast_to(a, u.shape)
    later = np.concatenate([a[:, 1:], np.zeros_like(a[:, :1])], 1)
    later_keep = None if keep is None else np.concatenate([keep[:, 1:], np.zeros_like(keep[:, :1])], 1)[:, ::-1]
    return run_linear_scan(u[:, ::-1], later[:, ::-1], None, later_keep)[:, ::-1]


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("linear_scan", inputs)
    expected = 3 - attrs["reverse"] + attrs["keep"]
    require(len(inputs) == expected, "linear_scan", f"takes {expected} tensors, got {len(inputs)}")
    u, a, *rest = inputs
    batch, length, width = axes_of("linear_scan", u, 3)
    require(a.shape in (u.shape, (width,)), "linear_scan", f"a needs the shape of u or [{width}]")
    if attrs["keep"]:
        require(rest.pop().shape == (batch, length), "linear_scan", "keep needs an element for each step")
    require(all(t.shape == (batch, width) for t in rest), "linear_scan", "the initial state has a wrong shape")
    return [float_output("sums", batch, length, width)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    u, a, *rest = inputs
    keep = rest.pop() if attrs["keep"] else None
    if attrs["reverse"]:
        return [np.ascontiguousarray(run_linear_scan_back(u, a, keep))]
    return [run_linear_scan(u, a, rest[0], keep)]


def _vjp(work: GraphBuilder, node: Node, g: int) -> Sequence[int | None]:
    """Emit the gradients of u, a and the initial state by a scan in the other direction; `keep` has none."""
    u, a, *rest = node.inputs
    keep = rest[-1] if node.attrs["keep"] else None
    batch, length, width = work.shape(u)
    y = node.outputs[0]
    if length == 0:
        return [g, *[None] * (len(node.inputs) - 1)]
    reverse = node.attrs["reverse"]
    start = work.zeros((batch, width)) if reverse else rest[0]
    p = linear_scan(work, g, a, start, keep) if reverse else linear_scan_back(work, g, a, keep)
    # The factor of a step multiplies the previous value of the scan: here p of the step before, and y of this step.
    behind, ahead = (p, y) if reverse else (y, p)
    first = work.reshape(start, (batch, 1, width))
    if length > 1:
        first = work.concat((first, work.part(behind, 1, 0, length - 1)), 1)
    met = work.binary("mul", ahead, first)
    if keep is not None:
        met = work.binary("mul_nonzero", met, work.reshape(keep, (batch, length, 1)))
    g_a = met
    by_step = work.shape(a) != (width,)
    if not by_step:
        g_a = work.reshape(work.reduce(met, "sum", (0, 1)), (width,))
    g_start: list[int | None] = []
    if not reverse:
        factor = work.reshape(work.part(a, 1, 0, 1), (batch, width)) if by_step else a
        passed = work.binary("mul", work.reshape(work.part(p, 1, 0, 1), (batch, width)), factor)
        if keep is not None:
            passed = work.binary("mul_nonzero", passed, work.part(keep, 1, 0, 1))
        g_start = [passed]
    return [p, g_a, *g_start, *([] if keep is None else [None])]


declare("linear_scan", _infer, _run, _vjp)
