"""One step of a recurrent layer in NumPy, and the loop over all steps of a call, both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from volumetric.base._typing import Array

States: TypeAlias = tuple[Array, ...]
"""Arrays that a step hands to the next, each ``[..., hidden_size]``; the first is h, the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One step of a recurrent layer from ``from_x = x Wihᵀ + bih`` and ``from_h = h Whhᵀ + bhh``, and back through it.

    Attributes
    ----------
    name : what operations of graphs and kernels call it
    blocks : pre-activations of one hidden unit; those of all units lie side by side, block by block
    states : names of what a step hands to the next
    keeps : numbers of a hidden unit and step that the gradient needs besides the states
    direct : the states whose gradient also comes another way than through `from_h`
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
    def kept(self) -> int:
        """Numbers of a unit and step beside h that operations keep: those of `keeps`, then the other states."""
        return len(self.keeps) + len(self.states) - 1

    def run(
        self, from_x: Array, weight: Array, bias: Array | None, start: States, keep: Array | None = None
    ) -> tuple[States, States]:
        """Run all steps of ``from_x [..., T, blocks · H]``.

        Parameters
        ----------
        weight : ``[blocks · H, width of a head]``: a unit sees those of its own head, which stand side by side
        keep : ``[..., T]``; where it is 0, the states are forgotten before the step, which begins with zeros

        Returns
        -------
        The states, ``[..., T + 1, H]`` with `start` in front, and what is kept, each ``[..., T, H]``.
        """
        *lead, length, wide = from_x.shape
        size = wide // self.blocks
        every = tuple(np.empty((*lead, length + 1, size), from_x.dtype) for _ in self.states)
        tape = tuple(np.empty((*lead, length, size), from_x.dtype) for _ in self.keeps)
        for state, first in zip(every, start, strict=True):
            state[..., 0, :] = first
        for t in range(length):
            before = tuple(held(state[..., t, :], keep, t) for state in every)
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
        """Back-propagate ``gy [..., T, H]`` through all steps that `run` made.

        Parameters
        ----------
        last : gradients of the last states beside h; None: zeros
        keep : as in `run`

        Returns
        -------
        The gradients of ``from_x`` and ``from_h``, and those of the states that the first step began with, which are
        zeros where it forgets, as far as these are `direct`.
        """
        g_x = np.empty((*gy.shape[:-1], len(weight)), gy.dtype)
        g_h = np.empty_like(g_x)
        g = [np.zeros_like(state[..., 0, :]) for state in every]
        g[1:] = g[1:] if last is None else last
        direct: States = tuple(np.zeros_like(g[0]) for _ in self.direct)
        for t in reversed(range(gy.shape[-2])):
            before, after = (tuple(state[..., at, :] for state in every) for at in (t, t + 1))
            before = tuple(held(state, keep, t) for state in before)
            g[0] = g[0] + gy[..., t, :]
            saved = tuple(of[..., t, :] for of in tape)
            g_x[..., t, :], g_h[..., t, :], direct = self.back(saved, before, after, tuple(g))
            ways = dict(zip(self.direct, direct, strict=True))
            g = [ways.get(name, np.zeros_like(g[0])) for name in self.states]
            g[0] = g[0] + self._product_back(g_h[..., t, :], weight)
            g = [held(of, keep, t) for of in g]
        return g_x, g_h, direct

    def _by_head(self, weight: Array) -> Array:
        """Weights as ``[blocks, heads, width, width]``."""
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


def held(state: Array, keep: Array | None, t: int) -> Array:
    """Return a state ``[..., H]`` as step `t` finds it: zeros, whatever it is, where ``keep [..., T]`` is 0."""
    return state if keep is None else np.where(keep[..., t, None] != 0, state, state.dtype.type(0))
