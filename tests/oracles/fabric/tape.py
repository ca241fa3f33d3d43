"""In NumPy: a small tape: what was computed, in order, and the way back through it. Nodes come first in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from volumetric.base._typing import Array, Shape


class Var:
    """A value, and its gradient once there is one."""

    __slots__ = ("grad", "value")

    def __init__(self, value: Array) -> None:
        self.value = value
        self.grad: Array | None = None

    @property
    def shape(self) -> Shape:
        """Of the value."""
        return self.value.shape

    def gain(self, grad: Array | None) -> None:
        """Add to the gradient."""
        if grad is not None:
            self.grad = grad if self.grad is None else self.grad + grad


Back = Callable[..., Sequence["Array | None"]]
"""Gradients of outputs → those of inputs."""


class Tape:
    """Records operations; `back` goes through them from the last to the first."""

    def __init__(self) -> None:
        self._records: list[tuple[Sequence[Var], Sequence[Var], Back]] = []

    def record(self, inputs: Sequence[Var], values: Sequence[Array], back: Back) -> list[Var]:
        """Record an operation of which the `values` are known."""
        made = [Var(value) for value in values]
        self._records.append((inputs, made, back))
        return made

    def back(self) -> None:
        """Give everything that was recorded its gradient; those of results are there before."""
        for inputs, made, back in reversed(self._records):
            if all(of.grad is None for of in made):
                continue
            grads = [np.zeros_like(of.value) if of.grad is None else of.grad for of in made]
            for of, grad in zip(inputs, back(*grads), strict=True):
                of.gain(grad)

    def product(self, x: Var, w: Var) -> Var:
        """``x wᵀ`` of ``[n, B, K]`` and ``[n or 1, N, K]``, node by node."""

        def back(g: Array) -> Sequence[Array]:
            by_node = g.swapaxes(1, 2) @ x.value
            whole = by_node if w.shape[0] == by_node.shape[0] else by_node.sum(0, keepdims=True)
            return g @ w.value, whole

        return self.record((x, w), (x.value @ w.value.swapaxes(1, 2),), back)[0]

    def add(self, a: Var, b: Var) -> Var:
        """Sum, with axes of size 1 repeated."""
        return self.record((a, b), (a.value + b.value,), lambda g: (_fitted(g, a.shape), _fitted(g, b.shape)))[0]

    def mul(self, a: Var, b: Var) -> Var:
        """Product of numbers, with axes of size 1 repeated."""

        def back(g: Array) -> Sequence[Array]:
            return _fitted(g * b.value, a.shape), _fitted(g * a.value, b.shape)

        return self.record((a, b), (a.value * b.value,), back)[0]

    def apply(self, x: Var, function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Var:
        """Record a function of single numbers, with its derivative."""
        return self.record((x,), (function(x.value),), lambda g: (g * slope(x.value),))[0]

    def take(self, x: Var, ids: Array) -> Var:
        """Entries of the first axis."""

        def back(g: Array) -> Sequence[Array]:
            whole = np.zeros_like(x.value)
            np.add.at(whole, ids, g)
            return (whole,)

        return self.record((x,), (x.value[ids],), back)[0]

    def reshape(self, x: Var, shape: Shape) -> Var:
        """View in another shape."""
        return self.record((x,), (x.value.reshape(shape),), lambda g: (g.reshape(x.shape),))[0]

    def swap(self, x: Var) -> Var:
        """Exchange the first two axes."""
        return self.record((x,), (x.value.swapaxes(0, 1),), lambda g: (g.swapaxes(0, 1),))[0]

    def join(self, parts: Sequence[Var], axis: int = 0) -> Var:
        """Put arrays one behind the other."""
        ends = np.cumsum([of.shape[axis] for of in parts])[:-1]
        return self.record(
            parts, (np.concatenate([of.value for of in parts], axis),), lambda g: np.split(g, ends, axis)
        )[0]

    def kept(self, x: Var, keep: Array | None) -> Var:
        """Forget where `keep` ``[B]`` is 0, whatever is there."""
        return x if keep is None else self.chosen(x, keep[:, None] != 0)

    def chosen(self, x: Var, there: Array) -> Var:
        """Put zeros where it is not `there`, bool in a shape that repeats to that of `x`, whatever they replace."""
        zero = x.value.dtype.type(0)
        return self.record((x,), (np.where(there, x.value, zero),), lambda g: (np.where(there, g, zero),))[0]


def _fitted(g: Array, shape: Shape) -> Array:
    """Sum over what was repeated."""
    lead = g.ndim - len(shape)
    g = g.sum(tuple(range(lead)))
    return g.sum(tuple(i for i, n in enumerate(shape) if n == 1 != g.shape[i]), keepdims=True)
