"""Recurrent layers with torch's equations and gate order: RNN, LSTM and GRU.

Elman 1990; Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000; Cho et al. 2014 (arXiv 1406.1078)
in the form that applies the reset gate after the product. The VJP is back-propagation through every step of the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import SpecError
from volumetric.layers.activations import activate, sigmoid, slope
from volumetric.layers.base import (
    Arrays,
    Grads,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_last,
    expect_positive,
    layer,
    rows,
)
from volumetric.layers.dense import affine, affine_params, affine_vjp
from volumetric.layers.state import StateSpec, is_sequence

States: TypeAlias = tuple[Array, ...]
"""Arrays that a step hands to the next, each ``[..., hidden_size]``; the first is h, the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent(LayerSpec):
    """What the recurrent layers share: the loop over the steps of ``[T, input_size]`` or ``[B, T, input_size]``.

    The output is h of every step. With a memory, a call goes on from the state that the steps before it left; in the
    VJP that state is a constant. Each step computes its cell from ``x Wihᵀ + bih`` and ``h Whhᵀ + bhh``, where the
    blocks of a cell lie one below the other.
    """

    contextual: ClassVar[bool] = True
    blocks: ClassVar[int] = 1
    """Pre-activations of one hidden unit."""
    handed_on: ClassVar[tuple[str, ...]] = ("h",)
    """Names of what a step hands to the next."""

    input_size: int
    hidden_size: int
    bias: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "input_size", "hidden_size")

    def cell(self, from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
        """Return the states after one step, and what its VJP needs."""
        raise NotImplementedError(self.kind)

    def cell_vjp(self, kept: States, before: States, g: States) -> tuple[Array, Array, States]:
        """Return the gradients of `from_x`, `from_h`, and of `before` apart from what goes through `from_h`."""
        raise NotImplementedError(self.kind)

    def params(self) -> tuple[ParamSpec, ...]:
        wide = self.blocks * self.hidden_size
        return (
            *affine_params("ih.", wide, self.input_size, bias=self.bias),
            *affine_params("hh.", wide, self.hidden_size, bias=self.bias),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        return tuple(StateSpec(name=name, shape=(self.hidden_size,), kind="fixed") for name in self.handed_on)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.input_size)
        return (*inputs[0][:-1], self.hidden_size)

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        kept = None if memory is None or not self.states(x.shape) else memory
        shape = (*x.shape[:-2], self.hidden_size)
        zeros = np.zeros(shape, x.dtype)
        start = tuple(zeros if kept is None else kept.read(name, shape, x.dtype) for name in self.handed_on)
        y, saved = self.steps(p, x, start)
        if kept is not None:
            for name, state in zip(self.handed_on, saved["every"], strict=True):
                kept.write(name, state[-1].copy())
        return y, saved

    def steps(self, p: Arrays, x: Array, start: States) -> tuple[Array, Saved]:
        """Run all steps from the states `start`; return the first state after each, and what the VJP needs."""
        *lead, length, _ = x.shape
        from_x = affine(p, "ih.", x)
        every = tuple(np.empty((*lead, length + 1, self.hidden_size), x.dtype) for _ in self.handed_on)
        for state, first in zip(every, start, strict=True):
            state[..., 0, :] = first
        tape: list[States] = []
        for t in range(length):
            before = tuple(state[..., t, :] for state in every)
            after, kept = self.cell(from_x[..., t, :], affine(p, "hh.", before[0]), before)
            for state, new in zip(every, after, strict=True):
                state[..., t + 1, :] = new
            tape.append(kept)
        return every[0][..., 1:, :], {"x": x, "every": every, "tape": tape}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        every: States = saved["every"]
        g_x = np.empty((*gy.shape[:-1], self.blocks * self.hidden_size), gy.dtype)
        g_h = np.empty_like(g_x)
        g = tuple(np.zeros_like(state[..., 0, :]) for state in every)
        for t in reversed(range(gy.shape[-2])):
            before = tuple(state[..., t, :] for state in every)
            g = (g[0] + gy[..., t, :], *g[1:])
            g_x[..., t, :], g_h[..., t, :], g = self.cell_vjp(saved["tape"][t], before, g)
            g = (g[0] + g_h[..., t, :] @ p["hh.weight"], *g[1:])
        params: dict[str, Array] = {}
        gx = affine_vjp(p, "ih.", saved["x"], g_x, params)
        params["hh.weight"] = rows(g_h).T @ rows(every[0][..., :-1, :])
        if self.bias:
            params["hh.bias"] = rows(g_h).sum(0)
        return Grads((gx,), params)


@layer("rnn")
class RNN(Recurrent):
    """``h' = act(x Wihᵀ + bih + h Whhᵀ + bhh)`` with tanh or ReLU; loop, shapes and memory as in `Recurrent`."""

    nonlinearity: Literal["tanh", "relu"] = "tanh"

    def __post_init__(self) -> None:
        """Check the fields."""
        Recurrent.__post_init__(self)
        if self.nonlinearity not in ("tanh", "relu"):
            raise SpecError(f"rnn: unknown nonlinearity {self.nonlinearity!r}", hint="one of tanh, relu")

    def cell(self, from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
        pre = from_x + from_h
        return (activate(self.nonlinearity, pre),), (pre,)

    def cell_vjp(self, kept: States, before: States, g: States) -> tuple[Array, Array, States]:
        g_pre = g[0] * slope(self.nonlinearity, kept[0])
        return g_pre, g_pre, (np.zeros_like(g[0]),)


@layer("lstm")
class LSTM(Recurrent):
    """``c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh(c')``; loop, shapes and memory as in `Recurrent`.

    ``[i, f, g, o] = [σ, σ, tanh, σ](x Wihᵀ + bih + h Whhᵀ + bhh)``, blocks in this order.
    """

    blocks: ClassVar[int] = 4
    handed_on: ClassVar[tuple[str, ...]] = ("h", "c")

    def cell(self, from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
        i, f, g, o = np.split(from_x + from_h, 4, axis=-1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c = f * before[1] + i * g
        bounded = np.tanh(c)
        return (o * bounded, c), (i, f, g, o, bounded)

    def cell_vjp(self, kept: States, before: States, g: States) -> tuple[Array, Array, States]:
        i, f, new, o, bounded = kept
        gh, gc = g
        gc = gc + gh * o * (1 - bounded * bounded)
        g_i = gc * new * i * (1 - i)
        g_f = gc * before[1] * f * (1 - f)
        g_new = gc * i * (1 - new * new)
        g_o = gh * bounded * o * (1 - o)
        g_pre = np.concatenate([g_i, g_f, g_new, g_o], axis=-1)
        return g_pre, g_pre, (np.zeros_like(gh), gc * f)


@layer("gru")
class GRU(Recurrent):
    """``h' = (1 - z) ⊙ n + z ⊙ h``; loop, shapes and memory as in `Recurrent`.

    ``r = σ(xr + hr)``, ``z = σ(xz + hz)``, ``n = tanh(xn + r ⊙ hn)``, where ``[xr, xz, xn] = x Wihᵀ + bih`` and
    ``[hr, hz, hn] = h Whhᵀ + bhh``.
    """

    blocks: ClassVar[int] = 3

    def cell(self, from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
        xr, xz, xn = np.split(from_x, 3, axis=-1)
        hr, hz, hn = np.split(from_h, 3, axis=-1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = np.tanh(xn + r * hn)
        return ((1 - z) * n + z * before[0],), (r, z, n, hn)

    def cell_vjp(self, kept: States, before: States, g: States) -> tuple[Array, Array, States]:
        r, z, n, hn = kept
        g_n = g[0] * (1 - z) * (1 - n * n)
        g_z = g[0] * (before[0] - n) * z * (1 - z)
        g_r = g_n * hn * r * (1 - r)
        g_x = np.concatenate([g_r, g_z, g_n], axis=-1)
        g_h = np.concatenate([g_r, g_z, g_n * r], axis=-1)
        return g_x, g_h, (g[0] * z,)
