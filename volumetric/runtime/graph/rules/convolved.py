"""Rules of layers with a short causal convolution over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volumetric.layers import ShortConv
from volumetric.layers.causal_conv import PAST
from volumetric.runtime.graph.rules.base import Scope, columns, gated, linear, rule


def causal_conv(
    scope: Scope,
    x: int,
    weight: int,
    bias: int | None,
    *,
    start: int = 0,
    activation: str = "linear",
    factors: Sequence[tuple[int, float]] = (),
) -> int:
    """Emit a causal convolution of each channel of ``x`` ``[rows, width]`` or ``[…, T, width]``.

    Parameters
    ----------
    weight : ``[channels, 1, taps]``
    start : column of the first channel
    activation : of the result
    factors : runs of channels and the factor on their weights
    """
    work = scope.work
    channels, _, taps = work.shape(weight)
    stored = (weight,) if bias is None else (weight, bias)
    if scope.keeps_state(x) and work.takes("causal_conv", (x,), stored):
        given = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
        given["past"] = scope.state(PAST, (taps - 1, channels))
        attrs = {"start": start, "activation": activation, "factors": tuple(factors)}
        return work.emit("causal_conv", tuple(given.values()), roles=tuple(given), **attrs)[0]
    if factors:
        by_channel = np.repeat([factor for _, factor in factors], [n for n, _ in factors])
        weight = work.binary("mul", weight, work.constant(by_channel[:, None, None], "factors"))
    x = work.part(x, len(work.shape(x)) - 1, start, start + channels)
    if scope.keeps_state(x):
        past = scope.state(PAST, (taps - 1, channels))
        later = [work.emit("delay", (x, work.part(past, 0, k, taps - 1)))[0] for k in range(1, taps - 1)]
        first, left = work.emit("delay", (x, past))
        terms = [first, *later, x]
        scope.keep(PAST, left)
    else:
        rows = scope.sequenced(x)
        length = work.shape(rows)[1]
        padded = work.pad(rows, (0, taps - 1, 0), (0, 0, 0))
        terms = [work.reshape(work.part(padded, 1, k, k + length), work.shape(x)) for k in range(taps)]
    taken = [work.reshape(work.part(weight, 2, k, k + 1), (channels,)) for k in range(taps)]
    y = work.add(*(work.binary("mul", term, factor) for term, factor in zip(terms, taken, strict=True)))
    y = y if bias is None else work.binary("add", y, bias)
    return work.unary(y, activation)


@rule("short_conv")
def _short_conv(scope: Scope, spec: ShortConv, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    with work.at(scope.path, mixes=False):
        wide = linear(work, p, ("in.",), x)
        width = spec.embed_dim
        b, c, v = (columns(work, wide, i * width, width) for i in range(3))
        product = gated(work, b, v, "linear")
    mixed = causal_conv(scope, product, p["conv.weight"], p.get("conv.bias"))
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("out.",), gated(work, c, mixed, "linear"))
