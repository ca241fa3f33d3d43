"""Masks of attention for sequences that are reset within a call, or continue from states of fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.linear_scan import linear_scan
from volumetric.graph.state_spec import bounded_states
from volumetric.layers.emit_scope import Scope, start_state

if TYPE_CHECKING:
    from volumetric.layers.attention import MultiHeadAttention


class AttentionPast(NamedTuple):
    """Bounded states: the last rows, ``[B, M, kv_heads, width]``, before RoPE; and the number of rows so far."""

    k: int
    v: int
    place: int


class AttentionMask(NamedTuple):
    """The rows that queries see.

    Attributes
    ----------
    mask : 1 if a row sees another, ``[T, S]`` or ``[B, T, S]``; None: all rows see all
    odd : ``[B, S, kv_heads, 1]``, NaN for values that are NaN or infinite, else 0; it is added to scores, and such
        values are set to 0, because products would spread NaN from rows that are not seen. None: values are unchanged
    """

    mask: int | None = None
    odd: int | None = None


def attention_past(scope: Scope, spec: MultiHeadAttention, x: int) -> AttentionPast | None:
    """Return the states from which the rows of `x` continue; None: sequences start with the call."""
    if not spec.causal or not scope.keeps_state(x):
        return None
    shapes = {state.name: state.shape for state in bounded_states(spec.states(), f"{spec.kind} at {scope.path}")}
    return AttentionPast(*(start_state(scope, x, name, shapes[name]) for name in AttentionPast._fields))


def places_in_sequence(scope: Scope, x: int, past: AttentionPast | None) -> int:
    """Return the number of earlier rows of its sequence for each row, ``[B, T, 1]``."""
    work = scope.work
    batch, length, _ = work.shape(scope.as_sequences(x))
    one = work.constant(np.ones(1), "one")
    steps = work.broadcast(work.reshape(one, (1, 1, 1)), (batch, length, 1))
    first = work.zeros((batch, 1)) if past is None else past.place
    return work.affine(linear_scan(work, steps, one, first, scope.keep_mask(x)), 1.0, -1.0)


def mask_of(scope: Scope, spec: MultiHeadAttention, x: int, places: int, before: int) -> int:
    """Return which rows see which, ``[B, T, before + T]``; `before` rows precede those of the call."""
    work = scope.work
    batch, length, _ = work.shape(places)
    distance = before + np.arange(length)[:, None] - np.arange(before + length)
    near = np.abs(distance) < (before + length + 1 if spec.window is None else spec.window)
    if spec.causal:
        reach = places if spec.chunk is None else emit_modulo(work, places, spec.chunk)
        band = work.constant((near & (distance >= 0))[None].astype(np.float64), "band")
        far = work.constant(distance[None].astype(np.float64), "distances")
        return work.binary("mul", work.binary("greater", work.affine(reach, 1.0, 0.5), far), band)
    band = work.constant(near[None].astype(np.float64), "band")
    keep = scope.keep_mask(x)
    assert keep is not None
    resets = work.reshape(work.affine(keep, -1.0, 1.0), (batch, length, 1))
    number = linear_scan(work, resets, work.constant(np.ones(1), "one"), work.zeros((batch, 1)))
    between = work.binary("sub", number, work.reshape(number, (batch, 1, length)))
    return work.binary("mul", work.binary("greater", work.scalar(0.5), work.unary(between, "abs")), band)


def emit_modulo(work: GraphBuilder, places: int, size: int) -> int:
    """Emit whole numbers modulo `size`."""
    times = work.unary(work.affine(places, 1 / size, 0.5 / size), "floor")
    return work.binary("sub", places, work.affine(times, float(size)))


def temperature_factors(work: GraphBuilder, spec: MultiHeadAttention, places: int) -> int:
    """Emit `graph.numeric.attention.temperature` of positions ``[B, T, 1]`` as ``[B, T, 1, 1]``."""
    every = spec.temperature_every
    steps = work.unary(work.affine(places, 1 / every, 1.5 / every), "floor")
    factors = work.affine(work.unary(work.affine(steps, 1.0, 1.0), "log"), spec.temperature_scale, 1.0)
    return work.reshape(factors, (*work.shape(places), 1))


def clean_values(work: GraphBuilder, v: int) -> tuple[int, int]:
    """Return values ``[B, S, kv_heads, width]`` with 0 for non-finite values, and `AttentionMask.odd`."""
    odd = work.reduce(work.affine(v, 0.0), "sum", (3,))
    work.detached.add(odd)  # it only carries NaN: it is 0 or NaN
    return work.binary("mul_nonzero", v, work.binary("greater", work.scalar(0.5), odd)), odd


def keep_last_rows(
    scope: Scope, spec: MultiHeadAttention, past: AttentionPast, places: int, rows: tuple[int, int]
) -> None:
    """Store the last keys and values, zeros for those of other sequences, and the number of rows of the sequence."""
    work = scope.work
    batch, length, _ = work.shape(places)
    most = work.shape(past.k)[1]
    last = work.reshape(work.part(places, 1, length - 1, length), (batch, 1))
    far = work.constant(np.arange(most, dtype=np.float64)[None, ::-1], "distances")
    own = work.reshape(work.binary("greater", work.affine(last, 1.0, 0.5), far), (batch, most, 1, 1))
    for name, whole in zip(("k", "v"), rows, strict=True):
        scope.keep_state(name, work.binary("mul_nonzero", work.part(whole, 1, length, length + most), own))
    after = work.affine(last, 1.0, 1.0)
    wraps = spec.chunk is not None and not spec.temperature_scale
    scope.keep_state("place", emit_modulo(work, after, spec.chunk) if wraps and spec.chunk else after)
