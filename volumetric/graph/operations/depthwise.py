"""`depthwise_conv`: causal convolution of each channel with its own taps, over sequences that may be reset.

``depthwise_conv``  x [B,T,C], weight [C,1,K], past [B,K-1,C]: rows before x [, bias [C]] [, keep [B,T]] → y [B,T,C]:
                    ``y[t] = Σ_l weight[:,0,K-1-l] x[t-l] + bias``. If keep, 0 or 1, is 0, the row and later ones see
                    nothing before it, not even NaN. ``bias``, ``resets``: whether bias and keep are present. K is 2
                    or more. All but keep have gradients. Devices without a kernel run sums of shifted rows.
``depthwise_conv_grad`` gy, x, weight, past [, keep] → gx, g of weight, of past and of bias. ``resets``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def depthwise_conv(
    work: GraphBuilder, x: int, weight: int, past: int, bias: int | None = None, keep: int | None = None
) -> int:
    """Emit ``y[t] = Σ_l weight[:, 0, K-1-l] x[t-l] + bias`` over the l for which no row in t-l+1 … t is a reset.

    Parameters
    ----------
    x : ``[B, T, C]``
    weight : ``[C, 1, K]``
    past : ``[B, K - 1, C]``, the rows before the first one
    bias : ``[C]``
    keep : ``[B, T]``, 0 for a row that sees nothing before it
    """
    inputs = [i for i in (x, weight, past, bias, keep) if i is not None]
    return work.emit("depthwise_conv", inputs, bias=bias is not None, resets=keep is not None)[0]


def _check(op: str, inputs: Sequence[Tensor], more: Sequence[tuple[int, ...]]) -> tuple[int, int, int, int]:
    """Return B, T, C and K from x, weight and past; check the other inputs, whose shapes `more` gives as indices."""
    require_floats(op, inputs)
    x, weight, past, *rest = inputs
    batch, length, width = axes_of(op, x, 3)
    channels, one, taps = axes_of(op, weight, 3)
    require((channels, one) == (width, 1) and taps > 1, op, "the weight needs 2 or more taps for each channel")
    require(past.shape == (batch, taps - 1, width), op, f"past must have {taps - 1} rows of {width} channels")
    shapes = [tuple((batch, length, width)[i] for i in of) for of in more]
    require([t.shape for t in rest] == shapes, op, f"other inputs need shapes {shapes}, got {[t.shape for t in rest]}")
    return batch, length, width, taps


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    expected = 3 + attrs["bias"] + attrs["resets"]
    require(len(inputs) == expected, "depthwise_conv", f"takes {expected} tensors, got {len(inputs)}")
    batch, length, width, _ = _check("depthwise_conv", inputs, [(2,)] * attrs["bias"] + [(0, 1)] * attrs["resets"])
    return [float_output("convolved", batch, length, width)]


def _infer_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    expected = 4 + attrs["resets"]
    require(len(inputs) == expected, "depthwise_conv_grad", f"takes {expected} tensors, got {len(inputs)}")
    g, *rest = inputs
    batch, length, width, taps = _check("depthwise_conv_grad", rest, [(0, 1)] * attrs["resets"])
    require(g.shape == rest[0].shape, "depthwise_conv_grad", "the gradient must have the shape of x")
    shapes = (batch, length, width), (width, 1, taps), (batch, taps - 1, width), (width,)
    return [float_output(name, *shape) for name, shape in zip(("gx", "gweight", "gpast", "gbias"), shapes, strict=True)]


def _tap_masks(keep: Array | None, length: int, taps: int) -> Iterator[tuple[int, Array | None]]:
    """Yield the offset of each tap, and a mask of the rows ``[B, T, 1]`` for which it stays in their sequence."""
    mask = None if keep is None else keep != 0
    for lag in range(taps):
        yield lag, None if mask is None or lag == 0 else mask[..., None]
        if mask is not None and keep is not None and lag:
            whole = np.concatenate([np.ones((len(keep), lag), bool), keep[:, : max(length - lag, 0)] != 0], 1)
            mask = mask & whole[:, :length]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, weight, past, *rest = inputs
    keep = rest.pop() if attrs["resets"] else None
    length, taps = x.shape[1], weight.shape[2]
    every = np.concatenate([past, x], 1)
    y = np.zeros_like(x)
    for lag, mask in _tap_masks(keep, length, taps):
        first = taps - 1 - lag
        term = every[:, first : first + length]
        term = term if mask is None else np.where(mask, term, x.dtype.type(0))
        y = y + term * weight[:, 0, first]
    return [y + rest[0] if attrs["bias"] else y]


def _run_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    g, x, weight, past, *rest = inputs
    length, taps = x.shape[1], weight.shape[2]
    every = np.concatenate([past, x], 1)
    g_every, g_weight = np.zeros_like(every), np.zeros_like(weight)
    for lag, mask in _tap_masks(rest[0] if attrs["resets"] else None, length, taps):
        first = taps - 1 - lag
        back, met = g * weight[:, 0, first], g * every[:, first : first + length]
        if mask is not None:
            back, met = (np.where(mask, of, g.dtype.type(0)) for of in (back, met))
        g_every[:, first : first + length] += back
        g_weight[:, 0, first] = met.sum((0, 1))
    return [g_every[:, taps - 1 :].copy(), g_weight, g_every[:, : taps - 1].copy(), g.sum((0, 1))]


def _vjp(work: GraphBuilder, node: Node, g: int) -> Sequence[int | None]:
    x, weight, past, *rest = node.inputs
    keep = (rest[-1],) if node.attrs["resets"] else ()
    gradients = work.emit("depthwise_conv_grad", (g, x, weight, past, *keep), resets=node.attrs["resets"])
    return [*gradients[: 3 + node.attrs["bias"]], *(None for _ in keep)]


def _written_out(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int, ...]:
    """Emit the decomposition: sums of shifted rows."""
    x, weight, past, *rest = inputs
    keep = rest.pop() if attrs["resets"] else None
    batch, length, width = work.shape(x)
    taps = work.shape(weight)[2]
    every, terms, mask = work.concat((past, x), 1), list[int](), keep
    for lag in range(taps):
        term = work.part(every, 1, taps - 1 - lag, taps - 1 - lag + length)
        if lag and mask is not None and keep is not None:
            term = work.binary("mul_nonzero", term, work.reshape(mask, (batch, length, 1)))
            ones = work.broadcast(work.constant(np.ones((1, 1)), "ones"), (batch, lag))
            whole = work.part(work.concat((ones, keep), 1), 1, 0, length)
            mask = work.binary("mul", mask, whole)
        factor = work.reshape(work.part(weight, 2, taps - 1 - lag, taps - lag), (width,))
        terms.append(work.binary("mul", term, factor))
    return (work.add(*reversed(terms), *rest),)


def _grad_written_out(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int, ...]:
    """Emit the gradients of the decomposition."""
    from volumetric.graph.differentiate import differentiate  # it imports this package

    g, x, weight, past, *keep = inputs
    first = len(work.nodes)
    [y] = _written_out(work, {**attrs, "bias": False}, (x, weight, past, *keep))
    gradients = differentiate(work, {y: g}, [x, weight, past], since=first)
    g_bias = work.reshape(work.reduce(g, "sum", (0, 1)), work.shape(x)[2:])
    return gradients[x], gradients[weight], gradients[past], g_bias


declare("depthwise_conv", _infer, _run, _vjp, written_out=_written_out)
declare("depthwise_conv_grad", _infer_grad, _run_grad, written_out=_grad_written_out)
