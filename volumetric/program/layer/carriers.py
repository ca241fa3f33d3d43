"""Carriers: update formulas of regions for the results of edges, and their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from volumetric.graph.build import GraphBuilder
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import linear
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention import head_ops
from volumetric.program.layer.attention.head_ops import QKVO, square_maps
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.program_facts import Facts, Place

EPS = 1e-5
"""Epsilon of norms."""
KEY_RATE = 0.1
"""Rate of a memory's keys, relative to that of its values."""
TRUST = -1.0
"""Initial bias of a filter's gain: σ(-1) = 0.27 of an error is applied."""

ROWS = "rows"
"""Parameter of a constant: its content."""


def carrier_params(facts: Facts, place: Place) -> tuple[ParamSpec, ...]:
    """Return the parameters of a region, ``regions.<name>.<…>``."""
    d, params = facts.program.canvas.width, list[ParamSpec]()
    if place.carrier == "filter":
        params += norm_params("predict.norm.", d)
        params += affine_params("predict.", d, d, bias=False, init="zeros")
        bias = ParamSpec(name="gain.bias", shape=(d,), init="uniform", bounds=(TRUST, TRUST), packable=False)
        params += (*affine_params("gain.", d, 2 * d, bias=False), bias)
    if place.carrier == "memory":
        rows = place.region.slots or len(place.positions)
        params.append(ParamSpec(name="memory.keys", shape=(rows, d), init="orthogonal", packable=False))
        for name in ("q", "k", "v"):
            params += affine_params(f"memory.{name}.", d, d, bias=False)
        params += affine_params("memory.write.", 1, d, bias=True)
    if place.carrier == "constant":
        params.append(ParamSpec(name=ROWS, shape=(place.rows, d), init="normal", packable=False))
    identity = place.region.identity
    if identity is not None:
        params.append(ParamSpec(name="slots", shape=(identity.capacity, d), init="normal", packable=False))
        params += square_maps(d, *(f"bind.{name}" for name in QKVO))
        params += norm_params("bind.norm.", d)
        if identity.births:
            params += affine_params("life.up.", max(1, d // 2), d, bias=True)
            params += affine_params("life.down.", 1, max(1, d // 2), bias=True)
    return tuple(dataclasses.replace(of, name=f"regions.{place.name}.{of.name}") for of in params)


def norm_params(name: str, d: int) -> tuple[ParamSpec, ...]:
    """Return gain and bias of a layer norm."""
    gain = ParamSpec(name=f"{name}weight", shape=(d,), init="ones", packable=False)
    return gain, ParamSpec(name=f"{name}bias", shape=(d,), init="zeros", packable=False)


def select_flagged(work: GraphBuilder, flag: int | None, a: int, b: int) -> int:
    """Emit `a` if a flag is 1 and `b` if it is 0: a select, so NaN of the other does not leak. None: `a`."""
    if flag is None:
        return a
    return work.add(work.binary("mul_nonzero", a, flag), work.binary("mul_nonzero", b, work.affine(flag, -1.0, 1.0)))


def layer_norm(work: GraphBuilder, p: Mapping[str, int], name: str, x: int) -> int:
    """Emit a norm with gain and bias over the last axis."""
    *lead, d = work.shape(x)
    count = 1
    for size in lead:
        count *= size
    rows = work.reshape(x, (count, d))
    return work.reshape(work.norm(rows, p[f"{name}weight"], p[f"{name}bias"], kind="layer", eps=EPS), (*lead, d))


def predict_filter(work: GraphBuilder, p: Mapping[str, int], x: int) -> int:
    """Emit x̂ of a filter."""
    return work.add(x, linear(work, p, ("predict.",), layer_norm(work, p, "predict.norm.", x)))


def step_filter(work: GraphBuilder, p: Mapping[str, int], x: int, z: int, written: int) -> tuple[int, int]:
    """Emit x' and e of a filter; rows are ``[B, N, d]``, `written` ``[B, N, 1]``."""
    expected = predict_filter(work, p, x)
    z = select_flagged(work, written, z, expected)
    error = work.binary("sub", z, expected)
    gain = work.unary(linear(work, p, ("gain.",), work.concat((expected, z), 2)), "sigmoid")
    return work.add(expected, work.binary("mul", gain, error)), error


def step_memory(
    work: GraphBuilder, p: Mapping[str, int], keys: int, values: int, z: int, written: int
) -> tuple[int, int]:
    """Emit κ and μ of a memory after a step, ``[B, S, d]``; z is ``[B, N, d]``, `written` ``[B, N, 1]``."""
    z = work.binary("mul_nonzero", z, written)
    queries = work.affine(linear(work, p, ("memory.q.",), z), work.shape(z)[2] ** -0.5)
    weights = head_ops.softmax(work, work.gemm(queries, keys, trans_b=True))
    gate = work.unary(linear(work, p, ("memory.write.",), z), "sigmoid")
    weights = work.binary("mul", weights, work.binary("mul_nonzero", gate, written))

    def moved(stored_rows: int, name: str, rate: float) -> int:
        part = work.affine(weights, rate)
        left = work.permute(product(work, work.affine(part, -1.0, 1.0)), (0, 2, 1))
        new_rows = linear(work, p, (f"memory.{name}.",), z)
        return work.add(work.binary("mul", stored_rows, left), work.gemm(part, new_rows, trans_a=True))

    return moved(keys, "k", KEY_RATE), moved(values, "v", 1.0)


def product(work: GraphBuilder, x: int) -> int:
    """Emit the product over the second of three axes, kept with size 1; by halves, so that no gradient divides."""
    while work.shape(x)[1] > 1:
        count = work.shape(x)[1]
        half = count // 2
        met = work.binary("mul", work.part(x, 1, 0, half), work.part(x, 1, half, 2 * half))
        x = work.concat((met, work.part(x, 1, count - 1, count)), 1) if count % 2 else met
    return x


def bind_slots(work: GraphBuilder, p: Mapping[str, int], count: int, slots: int, values: int) -> int:
    """Emit slots bound to the content of a region, ``[B, capacity, d]``; `count` heads."""
    one = {name: work.reshape(i, (1, *work.shape(i))) for name, i in p.items() if name.startswith("bind.")}
    queries, rows = (work.reshape(x, (1, *work.shape(x))) for x in (slots, values))
    read = work.reshape(
        head_ops.cross_attention(work, one, count, queries, rows, rows, prefix="bind."), work.shape(slots)
    )
    bound_slots = layer_norm(work, p, "bind.norm.", work.add(slots, read))
    if "life.up.weight" not in p:
        return bound_slots
    alive = linear(work, p, ("life.down.",), linear(work, p, ("life.up.",), bound_slots, activation="gelu"))
    return work.binary("mul", bound_slots, work.unary(alive, "sigmoid"))


def step_denoising(work: GraphBuilder, x: int, z: int, level: int, after: int) -> int:
    """Emit a step of DDIM; levels are ``[B, 1, 1]``."""
    zero, one = work.scalar(0.0), work.scalar(1.0)
    level, after = (work.binary("min", work.binary("max", of, zero), one) for of in (level, after))
    left = work.affine(level, -1.0, 1.0)
    there = work.binary("greater", left, zero)
    root = work.unary(work.add(left, work.affine(there, -1.0, 1.0)), "sqrt")
    noise = work.binary("div", work.binary("sub", x, work.binary("mul", root_of(work, level), z)), root)
    noise = work.binary("mul_nonzero", noise, there)
    remaining = work.binary("mul", root_of(work, work.affine(after, -1.0, 1.0)), noise)
    return work.add(work.binary("mul", root_of(work, after), z), remaining)


def add_noise(work: GraphBuilder, x: int, level: int, noise: int) -> int:
    """Emit ``√ᾱ x + √(1 - ᾱ) ε``; levels are ``[B, 1, 1]``."""
    level = work.binary("min", work.binary("max", level, work.scalar(0.0)), work.scalar(1.0))
    far = work.binary("mul", root_of(work, work.affine(level, -1.0, 1.0)), noise)
    return work.add(work.binary("mul", root_of(work, level), x), far)


def root_of(work: GraphBuilder, x: int) -> int:
    """Emit a square root with gradient 0 at 0, not infinity."""
    there = work.binary("greater", x, work.scalar(0.0))
    safe = work.add(x, work.affine(there, -1.0, 1.0))
    return work.binary("mul", work.unary(safe, "sqrt"), there)


def reduce_errors(work: GraphBuilder, meter: Meter, error: int) -> int:
    """Reduce errors ``[B, N, d]`` to one number for each kind, ``[B, kinds]``."""
    e = error if meter.signed else work.unary(error, "abs")
    batch, kinds = work.shape(error)[0], len(meter.kinds)

    def of(name: str) -> int:
        return work.reshape(work.reduce(e, name, (1, 2)), (batch, 1))

    if meter.reduce == "max_mean":
        mean = of("mean")
        largest = of("max") if kinds > 1 else mean
        return work.concat([largest if number % 2 == 0 else mean for number in range(kinds)], 1)
    if meter.reduce in ("mean", "max"):
        value = of(meter.reduce)
    else:
        square = work.reduce(work.unary(error, "square"), "mean" if meter.reduce == "rms" else "sum", (1, 2))
        value = root_of(work, work.reshape(square, (batch, 1)))
    return work.broadcast(value, (batch, kinds))


def follow_meter(work: GraphBuilder, meter: Meter, meter_state: int, error: int) -> int:
    """Emit the state of a meter after a step in which its region fires, ``[B, kinds + 1]``."""
    batch = work.shape(meter_state)[0]
    ones = work.broadcast(work.reshape(work.scalar(1.0), (1, 1)), (batch, 1))
    r = work.concat((reduce_errors(work, meter, error), ones), 1)
    return work.add(work.affine(meter_state, meter.decay), work.affine(r, 1 - meter.decay))


def update_meter(work: GraphBuilder, meter: Meter, meter_state: int, error: int, fires: int | None) -> int:
    """Emit the state of a meter after a step; `fires` is ``[B, 1]``, None: always."""
    return select_flagged(work, fires, follow_meter(work, meter, meter_state, error), meter_state)


def meter_values(work: GraphBuilder, meter: Meter, meter_state: int) -> int:
    """Emit the values for clocks, ``[B, kinds]``."""
    count = work.shape(meter_state)[1] - 1
    numbers, ones = work.part(meter_state, 1, 0, count), work.part(meter_state, 1, count, count + 1)
    if not meter.corrected:
        return numbers
    there = work.binary("greater", ones, work.scalar(0.0))
    return work.binary("div", numbers, work.add(ones, work.affine(there, -1.0, 1.0)))
