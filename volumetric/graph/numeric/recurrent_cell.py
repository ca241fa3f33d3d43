"""One step of a recurrent layer in NumPy, and the loop over all steps of a call, both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from volumetric.base._typing import Array

States: TypeAlias = tuple[Array, ...]
"""Arrays that a step passes to the next, each ``[..., hidden_size]``; the first is h, the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One step of a recurrent layer from ``from_x = x Wihᵀ + bih`` and ``from_h = h Whhᵀ + bhh``, and back through it.

    Attributes
    ----------
    name : its name in operations of graphs and in kernels
    blocks : pre-activations of one hidden unit; those of all units are contiguous, block by block
    states : names of the states that a step passes to the next
    keeps : values of a hidden unit and step that the gradient needs in addition to the states
    direct : the states that also have a gradient on a path other than `from_h`
    apart : whether the gradients of `from_x` and `from_h` differ
    step : (from_x, from_h, states before) → states after, kept
    back : (kept, states before, states after, their gradients) → gradients of `from_x`, of `from_h`, and of `direct`
    """

    name: str
    blocks: int
    states: tuple[str, ...] = ("h",)
    keeps: tuple[str, ...] = ()
    direct: tuple[str, ...] = ()
    apart: bool = False
    step: Callable[[Array, Array, States], tuple[States, States]]
    back: Callable[[States, States, States, States], tuple[Array, Array, States]]

    @property
    def saved_count(self) -> int:
        """Number of values per unit and step that operations store besides h: `keeps`, then the other states."""
        return len(self.keeps) + len(self.states) - 1

    def run(
        self, from_x: Array, weight: Array, bias: Array | None, start: States, keep: Array | None = None
    ) -> tuple[States, States]:
        """Run all steps of ``from_x [..., T, blocks · H]``.

        Parameters
        ----------
        weight : ``[blocks · H, width of a head]``: a unit sees the units of its own head, which are contiguous
        keep : ``[..., T]``; if it is 0, the states are reset to zeros before the step

        Returns
        -------
        The states, ``[..., T + 1, H]`` with `start` first, and the stored values, each ``[..., T, H]``.
        """
        *lead, length, wide = from_x.shape
        size = wide // self.blocks
        every = tuple(np.empty((*lead, length + 1, size), from_x.dtype) for _ in self.states)
        tape = tuple(np.empty((*lead, length, size), from_x.dtype) for _ in self.keeps)
        for state, first in zip(every, start, strict=True):
            state[..., 0, :] = first
        for t in range(length):
            before = tuple(kept_state(state[..., t, :], keep, t) for state in every)
            from_h = self._product(before[0], weight)
            after, saved = self.step(from_x[..., t, :], from_h if bias is None else from_h + bias, before)
            for state, new in zip(every, after, strict=True):
                state[..., t + 1, :] = new
            for of, new in zip(tape, saved, strict=True):
                of[..., t, :] = new
        return every, tape

    def run_back(
        self,
        weight: Array,
        every: States,
        tape: States,
        gy: Array,
        last: States | None = None,
        keep: Array | None = None,
    ) -> tuple[Array, Array, States]:
        """Back-propagate ``gy [..., T, H]`` through all steps of `run`.

        Parameters
        ----------
        last : gradients of the last states except h; None: zeros
        keep : as in `run`

        Returns
        -------
        The gradients of ``from_x`` and ``from_h``, and those of the initial states that are `direct`: zeros if the
        first step is reset.
        """
        g_x = np.empty((*gy.shape[:-1], len(weight)), gy.dtype)
        g_h = np.empty_like(g_x)
        g = [np.zeros_like(state[..., 0, :]) for state in every]
        g[1:] = g[1:] if last is None else last
        direct: States = tuple(np.zeros_like(g[0]) for _ in self.direct)
        for t in reversed(range(gy.shape[-2])):
            before, after = (tuple(state[..., at, :] for state in every) for at in (t, t + 1))
            before = tuple(kept_state(state, keep, t) for state in before)
            g[0] = g[0] + gy[..., t, :]
            saved = tuple(of[..., t, :] for of in tape)
            g_x[..., t, :], g_h[..., t, :], direct = self.back(saved, before, after, tuple(g))
            ways = dict(zip(self.direct, direct, strict=True))
            g = [ways.get(name, np.zeros_like(g[0])) for name in self.states]
            g[0] = g[0] + self._product_back(g_h[..., t, :], weight)
            g = [kept_state(of, keep, t) for of in g]
        return g_x, g_h, direct

    def _by_head(self, weight: Array) -> Array:
        """Return weights as ``[blocks, heads, width, width]``."""
        width = weight.shape[1]
        return weight.reshape(self.blocks, -1, width, width)

    def _product(self, h: Array, weight: Array) -> Array:
        """Return the products of all blocks with a state, head by head."""
        heads = self._by_head(weight)
        if heads.shape[1] == 1:
            return h @ weight.T
        products = np.einsum("...hi,ghoi->...gho", h.reshape(*h.shape[:-1], *heads.shape[1:3]), heads)
        return products.reshape(*h.shape[:-1], len(weight))

    def _product_back(self, g: Array, weight: Array) -> Array:
        """Return the gradient of a state from that of its products."""
        heads = self._by_head(weight)
        if heads.shape[1] == 1:
            return g @ weight
        g_state = np.einsum("...gho,ghoi->...hi", g.reshape(*g.shape[:-1], *heads.shape[:3]), heads)
        return g_state.reshape(*g.shape[:-1], len(weight) // self.blocks)


def kept_state(state: Array, keep: Array | None, t: int) -> Array:
    """Return a state ``[..., H]`` as step `t` reads it: zeros, even for NaN, if ``keep [..., T]`` is 0."""
    return state if keep is None else np.where(keep[..., t, None] != 0, state, state.dtype.type(0))
