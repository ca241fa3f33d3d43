"""Rules of layers with a short causal convolution over rows."""

from __future__ import annotations

from volumetric.layers import ShortConv
from volumetric.layers.causal_conv import PAST
from volumetric.runtime.graph.rules.base import Scope, linear, rule


def causal_conv(scope: Scope, x: int, weight: int, bias: int | None) -> int:
    """Emit a causal convolution of each channel of ``x`` ``[rows, channels]`` or ``[…, T, channels]``.

    Parameters
    ----------
    weight : ``[channels, 1, taps]``
    """
    work = scope.work
    channels, _, taps = work.shape(weight)
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
    factors = [work.reshape(work.part(weight, 2, k, k + 1), (channels,)) for k in range(taps)]
    y = work.add(*(work.binary("mul", term, factor) for term, factor in zip(terms, factors, strict=True)))
    return y if bias is None else work.binary("add", y, bias)


@rule("short_conv")
def _short_conv(scope: Scope, spec: ShortConv, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    with work.at(scope.path, mixes=False):
        wide = linear(work, p, ("in.",), x)
        b, c, v = work.split(wide, [spec.embed_dim] * 3, len(work.shape(wide)) - 1)
        product = work.binary("mul", b, v)
    mixed = causal_conv(scope, product, p["conv.weight"], p.get("conv.bias"))
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("out.",), work.binary("mul", c, mixed))
