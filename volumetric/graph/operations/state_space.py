"""Fused row operations of state-space layers, with states of fixed size.

``causal_conv`` x [ROWS,W], weight [C,1,taps] [, bias [C]], past: state [taps-1,C] → y [ROWS,C], past after the last
                row. ``y[t] = act(Σ_k f · weight[:,k] · row[t + k - taps + 1] + bias)`` over C columns of x from
                ``start`` on, preceded by the rows of past; ``activation``; ``factors``: (number of channels, f) pairs,
                () if f is 1.
``selective_scan`` x, dt, b, c [, z], a_log [H,N] or [H], d [H] [, dt_bias [H]], state [N, H · P] → y [ROWS, H · P],
                state. `selective_scan` below has the equations, with ``heads`` H, ``head_dim`` P, ``groups``,
                ``size`` N; ``starts``: the first column read of each. dt is ``softplus(dt_factor · dt + dt_bias)``
                within ``dt_min`` and ``dt_max`` (None: no bound), the rate ``-exp(a_log)``. d · x is added; with z the
                sum is multiplied by ``silu(z_factor · z)``.
                Mamba (https://arxiv.org/abs/2312.00752) has a decay for each channel and state element, Mamba-2
                (https://arxiv.org/abs/2405.21060) one for each head of channels. Both are this scan: the heads of
                Mamba are channels.
``grouped_norm`` x [ROWS,W], gain [W] → the rms norm of each of ``groups`` parts of a row, with ``eps``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, check_activation
from volumetric.graph.numeric.norms import rms_norm
from volumetric.graph.operations.linear_scan import run_linear_scan
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.operations.rowwise import inputs_by_role
from volumetric.graph.ops import Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def _infer_conv(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("causal_conv", inputs)
    check_activation(attrs["activation"])
    by_role = inputs_by_role(inputs, attrs)
    rows, width = axes_of("causal_conv", by_role["x"], 2)
    channels, _, taps = axes_of("causal_conv", by_role["weight"], 3)
    require(
        0 <= attrs["start"] <= width - channels,
        "causal_conv",
        f"{width} columns do not have {channels} channels from start={attrs['start']}",
    )
    require(
        by_role.get("bias", float_output("", channels)).shape == (channels,),
        "causal_conv",
        f"the bias needs {channels} elements",
    )
    require(by_role["past"].shape == (taps - 1, channels), "causal_conv", f"past needs shape {[taps - 1, channels]}")
    factors = attrs["factors"]
    require(
        not factors or sum(n for n, _ in factors) == channels, "causal_conv", f"factors must cover {channels} channels"
    )
    return [float_output("mixed", rows, channels), _state_output(by_role["past"])]


def _run_conv(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    by_role = inputs_by_role(inputs, attrs)
    weight = by_role["weight"] * conv_factors(attrs, by_role["weight"].dtype)
    start = attrs["start"]
    x = by_role["x"][:, start : start + len(weight)]
    rows = np.concatenate([by_role["past"], x])
    y = np.zeros_like(x)
    for k in range(weight.shape[2]):
        y += rows[k : k + len(x)] * weight[:, 0, k]
    y = y + by_role["bias"] if "bias" in by_role else y
    return [activate(attrs["activation"], y), rows[len(x) :].copy()]


def conv_factors(attrs: Attrs, dtype: np.dtype) -> Array:
    """Return the factors on the weights of a `causal_conv`, ``[channels, 1, 1]``, or one for all."""
    factors = attrs["factors"] or ((1, 1.0),)
    return np.concatenate([np.full(n, factor, dtype) for n, factor in factors])[:, None, None]


def softplus(x: Array) -> Array:
    """``log(1 + e**x)``, which neither overflows nor loses small values."""
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        return np.logaddexp(x, x.dtype.type(0))


class SelectiveScanInputs(NamedTuple):
    """Inputs of a selective scan.

    Attributes
    ----------
    x : ``[B, T, heads, head_dim]``
    dt : ``[B, T, heads]``, 0 or more
    a : ``[heads, size]``, or ``[heads, 1]`` if a head has one decay; below 0
    b, c : ``[B, T, groups, size]``; heads share them in equal groups
    """

    x: Array
    dt: Array
    a: Array
    b: Array
    c: Array


class SelectiveScanResult(NamedTuple):
    """Result of `selective_scan`: y, and the values that the gradient needs."""

    y: Array
    decay: Array
    states: Array
    keep: Array | None


def selective_scan(inputs: SelectiveScanInputs, start: Array, keep: Array | None = None) -> SelectiveScanResult:
    """``s[t] = keep[t] · exp(dt[t] a) ⊙ s[t - 1] + dt[t] b[t] ⊗ x[t]`` and ``y[t] = c[t] · s[t]``, head by head.

    `start` is s before the first step, ``[B, size, heads, head_dim]``. If `keep`, ``[B, T]``, is 0, nothing of the
    previous step remains.
    """
    x, dt, a, b, c = inputs
    heads = x.shape[2]
    step = dt[:, :, None, :, None]
    decay = np.exp(step * a.T[:, :, None])
    states = run_linear_scan(_by_head(b, heads) * (step * x[:, :, None]), decay, start, keep)
    y = np.sum(_by_head(c, heads) * states, axis=2)
    return SelectiveScanResult(y, decay, np.concatenate([start[:, None], states], 1), keep)


def _by_head(grouped: Array, heads: int) -> Array:
    """``[B, T, groups, size]`` → ``[B, T, size, heads, 1]``."""
    return np.repeat(grouped, heads // grouped.shape[2], axis=2).swapaxes(2, 3)[..., None]


def _infer_scan(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("selective_scan", inputs)
    by_role = inputs_by_role(inputs, attrs)
    heads, size, inner = attrs["heads"], attrs["size"], attrs["heads"] * attrs["head_dim"]
    require(heads % attrs["groups"] == 0, "selective_scan", f"{attrs['groups']} groups must divide {heads} heads")
    widths = {"x": inner, "dt": heads, "b": attrs["groups"] * size, "c": attrs["groups"] * size, "z": inner}
    rows = axes_of("selective_scan", by_role["x"], 2)[0]
    for name in widths.keys() & by_role.keys():
        start, (count, width) = attrs["starts"][name], axes_of("selective_scan", by_role[name], 2)
        fits = count == rows and 0 <= start <= width - widths[name]
        require(fits, "selective_scan", f"{name} does not have {widths[name]} columns from {start} on")
    require(
        by_role["a_log"].shape in ((heads, size), (heads,)),
        "selective_scan",
        f"a_log needs shape {[heads, size]} or {[heads]}",
    )
    vectors = [by_role[name].shape for name in ("d", "dt_bias") if name in by_role]
    require(
        all(shape == (heads,) for shape in vectors), "selective_scan", "d and dt_bias need an element for each head"
    )
    require(by_role["state"].shape == (size, inner), "selective_scan", f"the state needs shape {[size, inner]}")
    return [float_output("scanned", rows, inner), _state_output(by_role["state"])]


def _run_scan(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    by_role = inputs_by_role(inputs, attrs)
    heads, groups, size = attrs["heads"], attrs["groups"], attrs["size"]
    shapes = {"x": (heads, attrs["head_dim"]), "dt": (heads,), "b": (groups, size), "c": (groups, size)}
    parts = {name: _part(by_role[name], attrs["starts"][name], shape) for name, shape in shapes.items()}
    kind = by_role["x"].dtype.type
    pre = parts["dt"] * kind(attrs["dt_factor"]) + by_role.get("dt_bias", kind(0))
    dt = np.clip(softplus(pre), attrs["dt_min"], attrs["dt_max"])
    rate = -np.exp(by_role["a_log"].reshape(heads, -1))
    start = by_role["state"].reshape(1, size, *shapes["x"])
    of = selective_scan(SelectiveScanInputs(parts["x"], dt, rate, parts["b"], parts["c"]), start)
    y = (of.y + by_role["d"][:, None] * parts["x"])[0].reshape(len(by_role["x"]), -1)
    if "z" in by_role:
        z = _part(by_role["z"], attrs["starts"]["z"], (y.shape[1],))[0]
        y = y * activate("silu", z * kind(attrs["z_factor"]))
    return [y, of.states[0, -1].reshape(size, -1).copy()]


def _part(rows: Array, start: int, shape: tuple[int, ...]) -> Array:
    """Return columns of rows from `start` on, as one sequence ``[1, rows, *shape]``."""
    return rows[:, start : start + int(np.prod(shape))].reshape(1, len(rows), *shape)


def _infer_norm(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("grouped_norm", inputs)
    x, gain = inputs
    rows, width = axes_of("grouped_norm", x, 2)
    require(gain.shape == (width,), "grouped_norm", f"the gain needs {width} elements")
    require(
        attrs["groups"] > 0 and width % attrs["groups"] == 0,
        "grouped_norm",
        f"{attrs['groups']} groups must divide {width} columns",
    )
    return [float_output("normal", rows, width)]


def _run_norm(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, gain = inputs
    shape = (len(x), attrs["groups"], x.shape[1] // attrs["groups"])
    return [rms_norm(x.reshape(shape), gain.reshape(shape[1:]), attrs["eps"])[0].reshape(x.shape)]


def grouped_norm_nodes(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int]:
    """Emit the norms of parts of rows in general operations."""
    x, gain = inputs
    (rows, width), groups = work.shape(x), attrs["groups"]
    normal = work.norm(work.reshape(x, (rows * groups, width // groups)), kind="rms", eps=attrs["eps"])
    return (work.binary("mul", work.reshape(normal, (rows, width)), gain),)


def _state_output(state: Tensor) -> Tensor:
    return Tensor(name=state.name, shape=state.shape, key=state.key)


declare("causal_conv", _infer_conv, _run_conv)
declare("selective_scan", _infer_scan, _run_scan)
declare("grouped_norm", _infer_norm, _run_norm, written_out=grouped_norm_nodes)
