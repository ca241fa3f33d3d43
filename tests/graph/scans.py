"""Scans that tests share: bodies of several kinds over lengths of 0, 1 and more, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from volumetric.graph import GraphBuilder
from volumetric.graph.operations.scan import ScanBody

RNG = np.random.default_rng(21)


@dataclass(frozen=True, kw_only=True)
class ScanCase:
    """A body and what it runs over."""

    body: ScanBody
    xs: Sequence[np.ndarray] = ()
    constants: Sequence[np.ndarray] = ()
    states: Sequence[np.ndarray] = ()
    length: int | None = None
    reverse: bool = False

    @property
    def arrays(self) -> list[np.ndarray]:
        return [*self.xs, *self.constants, *self.states]


def emit(case: ScanCase) -> tuple[GraphBuilder, list[int], list[int]]:
    """A builder with the scan; its inputs, and the ys and last states."""
    work = GraphBuilder()
    inputs = [
        work.input(f"x{i}", x.shape, "int32" if x.dtype == np.int32 else "float32") for i, x in enumerate(case.arrays)
    ]
    ends = len(case.xs), len(case.xs) + len(case.constants)
    parts = inputs[: ends[0]], inputs[ends[0] : ends[1]], inputs[ends[1] :]
    ys, last = work.scan(case.body, *parts, length=case.length, reverse=case.reverse)
    return work, inputs, [*ys, *last]


def product(work: GraphBuilder, x: int, weight: int) -> int:
    """``x weightᵀ`` of rows."""
    rows, wide = work.shape(x), work.shape(weight)
    made = work.gemm(work.reshape(x, (1, *rows)), work.reshape(weight, (1, *wide)), trans_b=True)
    return work.reshape(made, (rows[0], wide[0]))


def elman(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """``h' = tanh(x + h Wᵀ + b)``."""
    h = work.unary(work.add(xs[0], product(work, states[0], constants[0]), constants[1]), "tanh")
    return [h], [h]


def minimal_gated(
    work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]
) -> tuple[list[int], list[int]]:
    """The minimal gated unit (Zhou et al. 2016, arXiv 1603.09420), from products with x that are made before.

    ``f = σ(x_f + h U_fᵀ)``, ``n = tanh(x_n + (f ⊙ h) U_nᵀ)``, ``h' = (1 − f) ⊙ h + f ⊙ n``.
    """
    [h], (gate, new) = states, constants
    x_f, x_n = work.split(xs[0], [work.shape(h)[1]] * 2, 1)
    f = work.unary(work.add(x_f, product(work, h, gate)), "sigmoid")
    n = work.unary(work.add(x_n, product(work, work.binary("mul", f, h), new)), "tanh")
    h = work.add(h, work.binary("mul", f, work.binary("sub", n, h)))
    return [h], [h]


def looked_up(
    work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]
) -> tuple[list[int], list[int]]:
    """Rows of a table by token ids, averaged over time."""
    h = work.affine(work.add(states[0], work.gather_rows(constants[0], xs[0])), 0.5)
    return [work.unary(h, "square")], [h]


def counting(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """Of two states one decides nothing and no y reads it."""
    h = work.unary(work.add(xs[0], states[0]), "sigmoid")
    return [work.binary("mul", h, xs[1])], [h, work.add(states[1], work.reduce(xs[0], "sum", (0, 1)))]


def passing(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """Outputs that no node makes: an x, a state and a constant as they are, and one tensor several times."""
    total = work.add(states[1], xs[0])
    return [xs[0], total, total], [constants[0], total, states[2], total]


def free(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """Nothing comes in but states and constants."""
    [weight] = constants
    return [], [work.unary(product(work, states[0], weight), "tanh")]


def stateless(
    work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]
) -> tuple[list[int], list[int]]:
    """Each step on its own."""
    return [product(work, xs[0], constants[0]), work.unary(xs[0], "exp")], []


def nested(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """A scan backwards over the columns of each x, from the state of the outer one."""
    ys, last = work.scan(elman, xs, constants, states, reverse=True)
    return [work.reduce(ys[0], "sum", (0,))], last


def detached(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """Differentiation stops at the norm by which the state is divided."""
    size = work.affine(work.reduce(work.unary(states[0], "square"), "sum", (0, 1)), 1.0, 1.0)
    work.detached.add(size)
    h = work.add(work.binary("div", states[0], size), xs[0])
    return [h], [h]


def by_heads(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """Products of groups with parts of a weight, on the right, turned or not, on the left, and shared."""
    [h], (weight, shared, bias) = states, constants
    heads, rows, size = work.shape(h)
    right, turned, left = work.split(weight, [size] * 3, 2)
    from_left = work.permute(work.gemm(left, h, trans_b=True), (0, 2, 1))
    total = work.add(work.gemm(h, right), work.gemm(h, turned, trans_b=True), from_left, work.gemm(h, shared))
    again = work.gemm(work.unary(h, "sigmoid"), right)
    h = work.unary(work.add(xs[0], total, again, work.broadcast(bias, (heads, rows, size))), "tanh")
    return [h], [h]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _elman(length: int, rows: int, size: int, *, reverse: bool = False) -> ScanCase:
    constants = (normal(size, size) * np.float32(0.5), normal(size))
    states = (normal(rows, size),)
    return ScanCase(body=elman, xs=(normal(length, rows, size),), constants=constants, states=states, reverse=reverse)


def _gated(length: int, rows: int, size: int) -> ScanCase:
    weights = (normal(size, size) / np.float32(size**0.5), normal(size, size) / np.float32(size**0.5))
    return ScanCase(
        body=minimal_gated, xs=(normal(length, rows, 2 * size),), constants=weights, states=(normal(rows, size),)
    )


SCANS: dict[str, ScanCase] = {
    "elman": _elman(5, 2, 3),
    "reverse": _elman(4, 1, 5, reverse=True),
    "one-step": _elman(1, 3, 2),
    "one-step-reverse": _elman(1, 1, 1, reverse=True),
    "no-steps": _elman(0, 2, 3),
    "gated": _gated(4, 2, 3),
    "gated-wide": _gated(3, 17, 33),
    "ids": ScanCase(
        body=looked_up,
        xs=(RNG.integers(0, 7, (6, 2)).astype(np.int32),),
        constants=(normal(7, 3),),
        states=(normal(2, 3),),
        reverse=True,
    ),
    "unread-state": ScanCase(body=counting, xs=(normal(3, 2, 3), normal(3, 2, 3)), states=(normal(2, 3), normal(1, 1))),
    "passing": ScanCase(
        body=passing,
        xs=(normal(3, 2, 2),),
        constants=(normal(1, 4),),
        states=(normal(1, 4), normal(2, 2), normal(5), normal(2, 2)),
    ),
    "passing-no-steps": ScanCase(
        body=passing,
        xs=(normal(0, 2, 2),),
        constants=(normal(1, 4),),
        states=(normal(1, 4), normal(2, 2), normal(5), normal(2, 2)),
    ),
    "heads": ScanCase(
        body=by_heads,
        xs=(normal(3, 2, 4, 3),),
        constants=(normal(2, 3, 9) * np.float32(0.3), normal(1, 3, 3) * np.float32(0.3), normal(1, 1, 3)),
        states=(normal(2, 4, 3),),
    ),
    "no-sequence": ScanCase(body=free, constants=(normal(3, 3),), states=(normal(2, 3),), length=4),
    "no-state": ScanCase(body=stateless, xs=(normal(4, 2, 3),), constants=(normal(5, 3),)),
    "nested": ScanCase(
        body=nested,
        xs=(normal(2, 3, 1, 2),),
        constants=(normal(2, 2) * np.float32(0.5), normal(2)),
        states=(normal(1, 2),),
    ),
}
