"""Parameters and state of a short causal convolution of each channel over the rows of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.depthwise import depthwise_conv
from volumetric.graph.state_spec import StateSpec
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_spec import ParamSpec

PAST = "past"
"""State with the last rows before a call."""


def conv_state(channels: int, taps: int) -> StateSpec:
    """Return the state with the rows before a call that its first rows see."""
    return StateSpec(name=PAST, shape=(taps - 1, channels), kind="fixed")


def conv_params(prefix: str, channels: int, taps: int, *, bias: bool) -> tuple[ParamSpec, ...]:
    """Return ``{prefix}weight [channels, 1, taps]``, as of torch's depthwise Conv1d, and ``{prefix}bias``."""
    weight = ParamSpec(name=f"{prefix}weight", shape=(channels, 1, taps), packable=False)
    own = ParamSpec(name=f"{prefix}bias", shape=(channels,), init="zeros", packable=False)
    return (weight, own) if bias else (weight,)


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
    """Emit a causal convolution of the channels of ``x`` ``[rows, width]`` or ``[…, T, width]``.

    Parameters
    ----------
    weight : ``[channels, 1, taps]``, or ``[channels, channels, taps]``
    start : column of the first channel
    activation : of the result
    factors : (number of channels, factor on their weights) pairs, in order
    """
    work = scope.work
    channels, _, taps = work.shape(weight)
    stored = (weight,) if bias is None else (weight, bias)
    native = taps > 1 and work.shape(weight)[1] == 1
    if native and scope.keeps_state(x) and work.is_native("causal_conv", (x, *stored)):
        by_role = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
        by_role["past"] = scope.state(PAST, (taps - 1, channels))
        attrs = {"start": start, "activation": activation, "factors": tuple(factors)}
        return work.emit("causal_conv", tuple(by_role.values()), roles=tuple(by_role), **attrs)[0]
    x = work.part(x, len(work.shape(x)) - 1, start, start + channels)
    if factors:
        by_channel = np.repeat([factor for _, factor in factors], [n for n, _ in factors])
        weight = work.binary("mul", weight, work.constant(by_channel[:, None, None], "factors"))
    if native and work.shape(x)[0] >= 0:
        return work.unary(_by_channel(scope, x, weight, bias), activation)
    terms = lagged_rows(scope, x, taps)
    if work.shape(weight)[1] > 1:
        y = _mix_channels(scope, terms, weight)
    else:
        tap_weights = [work.reshape(work.part(weight, 2, k, k + 1), (channels,)) for k in range(taps)]
        y = work.add(*(work.binary("mul", term, factor) for term, factor in zip(terms, tap_weights, strict=True)))
    y = y if bias is None else work.binary("add", y, bias)
    return work.unary(y, activation)


def lagged_rows(scope: Scope, x: int, taps: int) -> list[int]:
    """Emit the rows ``taps - 1`` … 0 rows earlier in their sequence, zeros before its start."""
    work = scope.work
    if taps == 1:
        return [x]
    if scope.keeps_state(x) and work.shape(x)[0] < 0:
        past = scope.state(PAST, (taps - 1, work.shape(x)[1]))
        later = [work.emit("delay", (x, work.part(past, 0, k, taps - 1)))[0] for k in range(1, taps - 1)]
        first, left = work.emit("delay", (x, past))
        scope.keep_state(PAST, left)
        return [first, *later, x]
    rows, keep = scope.as_sequences(x), scope.keep_mask(x)
    batch, length, width = work.shape(rows)
    if scope.keeps_state(x):
        every = work.concat((scope.state(PAST, (batch, taps - 1, width)), rows), 1)
    else:
        every = work.pad(rows, (0, taps - 1, 0), (0, 0, 0))
    visible = [] if keep is None else _lag_masks(work, keep, taps)

    def earlier(lag: int) -> int:
        met = work.part(every, 1, taps - 1 - lag, taps - 1 - lag + length)
        return work.binary("mul_nonzero", met, visible[lag]) if lag and visible else met

    _keep_past(scope, x, every, visible, taps)
    return [work.reshape(earlier(lag), work.shape(x)) for lag in reversed(range(1, taps))] + [x]


def _by_channel(scope: Scope, x: int, weight: int, bias: int | None) -> int:
    """Emit the depthwise convolution."""
    work, rows, keep = scope.work, scope.as_sequences(x), scope.keep_mask(x)
    taps = work.shape(weight)[2]
    batch, _, width = work.shape(rows)
    shape = (batch, taps - 1, width)
    past = scope.state(PAST, shape) if scope.keeps_state(x) else work.zeros(shape)
    y = depthwise_conv(work, rows, weight, past, bias, keep)
    _keep_past(scope, x, work.concat((past, rows), 1), [] if keep is None else _lag_masks(work, keep, taps), taps)
    return work.reshape(y, work.shape(x))


def _keep_past(scope: Scope, x: int, every: int, visible: Sequence[int], taps: int) -> None:
    """Store the last rows of ``[B, taps - 1 + T, width]``, with zeros for those that the last row does not see."""
    work = scope.work
    length = work.shape(every)[1] - taps + 1
    if not (scope.keeps_state(x) and length):
        return
    left = work.part(every, 1, length, length + taps - 1)
    if visible:
        last = [work.part(visible[lag], 1, length - 1, length) for lag in range(1, taps - 1)]
        now = work.affine(work.part(visible[1], 1, length - 1, length), 0.0, 1.0)
        left = work.binary("mul_nonzero", left, work.concat((*reversed(last), now), 1))
    scope.keep_state(PAST, left)


def _lag_masks(work: GraphBuilder, keep: int, taps: int) -> list[int]:
    """Emit for each lag but 0 which rows of ``[B, T]`` see that far back, ``[B, T, 1]``."""
    batch, length = work.shape(keep)
    before = work.broadcast(work.constant(np.ones((1, 1)), "ones"), (batch, taps - 1))
    padded = work.concat((before, keep), 1)
    visible = [keep, keep]
    for lag in range(2, taps):
        first = taps - lag
        visible.append(work.binary("mul", visible[-1], work.part(padded, 1, first, first + length)))
    return [work.reshape(of, (batch, length, 1)) for of in visible]


def _mix_channels(scope: Scope, terms: Sequence[int], weight: int) -> int:
    """Emit the products of all channels of lagged rows with ``[out, in, taps]``."""
    work = scope.work
    wide, width, taps = work.shape(weight)
    rows = work.concat(terms, len(work.shape(terms[0])) - 1)  # first: a device may have a fused concat of rows
    turned = work.reshape(work.permute(weight, (0, 2, 1)), (wide, taps * width))
    return linear(work, {"weight": turned}, ("",), rows)
