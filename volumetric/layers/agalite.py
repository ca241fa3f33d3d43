"""AGaLiTe: a gated linear transformer whose attention is approximated (Pramanik et al. 2023, arXiv 2310.15719)."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import SpecError
from volumetric.graph.operations.linear_scan import linear_scan as emit_linear_scan
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear, start_state
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("agalite")
class AGaLiTe(LayerSpec):
    """Attention with a state of fixed size, on rows ``[…, T, E]``.

    ::

        k, q, v, β̃, γ = W_kqvβγ x        p₁, p₂, p₃ = W_p x            by heads of d channels; p: η numbers each
        φ_k = relu(k) ⊗ relu(p₁)    φ_q = relu(q) ⊗ relu(p₂)    Γ = σ(γ) ⊗ σ(p₃)    β = σ(β̃)
        o_j = cos(ω_j (t + 1))        ω = −π … π, r of them; t is the row's number in its sequence, from 1 on
        k̃_j ← (1 − Γ) k̃_j + o_j Γ φ_k      ṽ_j ← (1 − β) ṽ_j + o_j β v      s ← (1 − Γ) s + Γ φ_k
        y = W (Σ_j ṽ_j (k̃_j · φ_q) / (2 r (s · φ_q) + ε)) + b

    Linear attention stores a matrix of keys and values. Here r pairs of decaying sums approximate it, whose size grows
    with d and not with its square. If all products of φ_q are 0, y is the bias.

    The state of a sequence is k̃ ``[r, heads, η d]``, ṽ ``[r, heads, d]``, s ``[heads, η d]`` and the number of its
    last row. The number is stored modulo 2 (r − 1), the period of the cosines. A reset sets all of them to zero. In
    gradients they are constants.

    Pramanik et al. 2023 (arXiv 2310.15719).

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads, which divide the width
    eta : factor on the number of features of keys, queries and decays
    r : frequencies
    eps : is added to the divisor
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int = positional()
    num_heads: int = positional(default=8)
    eta: int = 6
    r: int = 2
    eps: float = 1e-5

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "embed_dim", "num_heads", "eta", "r")
        if self.embed_dim % self.num_heads:
            raise SpecError(f"agalite: {self.num_heads} heads do not divide a width of {self.embed_dim}")
        if not self.eps > 0:
            raise SpecError(f"agalite: eps must be above 0, got {self.eps!r}")

    @property
    def by_head(self) -> tuple[int, int]:
        """Heads, and the width of one."""
        return self.num_heads, self.embed_dim // self.num_heads

    @property
    def features(self) -> int:
        """Features of a head's keys."""
        return self.eta * self.by_head[1]

    @property
    def period(self) -> int:
        """Rows after which all phases repeat."""
        return max(2 * (self.r - 1), 2)

    def phases(self) -> Array:
        """Return ``cos(ω (t + 1))`` for each t below the period, ``[period, r]``."""
        return np.cos(np.linspace(-np.pi, np.pi, self.r) * (np.arange(self.period)[:, None] + 1))

    def params(self) -> tuple[ParamSpec, ...]:
        heads, width = self.by_head
        return (
            ParamSpec(name="kqvbg.weight", shape=(5 * heads * width, self.embed_dim), init="orthogonal_wide"),
            ParamSpec(name="p.weight", shape=(3 * heads * self.eta, self.embed_dim), init="orthogonal_wide"),
            *affine_params("out.", self.embed_dim, self.embed_dim, bias=True, init="orthogonal_wide"),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        return tuple(StateSpec(name=name, shape=shape, kind="fixed") for name, shape in self.shapes.items())

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of the states by name; ``tick`` is the number of the last row within the period."""
        heads, width = self.by_head
        keys = (heads, self.features)
        return {"tilde_k": (self.r, *keys), "tilde_v": (self.r, heads, width), "s": keys, "tick": (1,)}

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, p, r = scope.work, scope.params(self), self.r
        heads, width = self.by_head
        with work.at(scope.path, mixes=False):
            wide, small = (linear(work, p, (name,), x) for name in ("kqvbg.", "p."))
        batch, length, _ = work.shape(scope.as_sequences(x))
        rows, keys = batch * length, heads * self.features
        k, q, v, beta, gamma = work.split(work.reshape(wide, (rows, heads, 5, width)), (1,) * 5, 2)
        p1, p2, p3 = work.split(work.reshape(small, (rows, heads, 3, self.eta)), (1,) * 3, 2)

        # Both sides of an outer product are expanded by constant matrices of 0 and 1, since devices have fast matrix
        # products, also in gradients; a product with broadcasting would have rows of only `eta` elements.
        places = np.arange(self.features)
        spread = (np.arange(width)[:, None] == places // self.eta, np.arange(self.eta)[:, None] == places % self.eta)

        def outer(a: int, b: int, name: str) -> int:
            """Products of functions of both, ``[rows, 1, keys]``."""
            sides = []
            for side, matrix in zip((a, b), spread, strict=True):
                each = work.reshape(work.unary(side, name), (1, rows * heads, len(matrix)))
                sides.append(work.gemm(each, work.constant(matrix[None].astype(np.float64), "spread")))
            return work.reshape(work.binary("mul", *sides), (rows, 1, keys))

        decay, beta = outer(gamma, p3, "sigmoid"), work.reshape(work.unary(beta, "sigmoid"), (rows, 1, heads * width))
        v = work.reshape(v, (rows, 1, heads * width))
        phases = _phases(scope, self, x)
        before = {name: start_state(scope, x, name, shape) for name, shape in self.shapes.items() if name != "tick"}
        summed = work.concat((before["tilde_k"], work.reshape(before["s"], (batch, 1, heads, self.features))), 1)

        def sums(of: int, left: int, phase: int | None, first: int) -> int:
            """Emit the sums of ``phase · of`` that decay by the factor `left` at each step, ``[B, T, phases · …]``."""
            count, each = 1 if phase is None else work.shape(phase)[1], work.shape(of)[2]
            u = of if phase is None else work.binary("mul", of, phase)
            u, a = (
                work.reshape(i, (batch, length, count * each)) for i in (u, work.broadcast(left, (rows, count, each)))
            )
            return emit_linear_scan(work, u, a, work.reshape(first, (batch, count * each)), scope.keep_mask(x))

        # Sums of keys dominate memory and time: in long windows each phase has a separate scan with the same decay; the
        # last phase, which is 1, needs no product.
        runs = [(0, r + 1)] if length <= _FEW else [(i, i + 1) for i in range(r + 1)]
        new, left = work.binary("mul", outer(k, p1, "relu"), decay), work.affine(decay, -1.0, 1.0)
        all_keys = [
            sums(new, left, None if run[0] == r else work.part(phases, 1, *run), work.part(summed, 1, *run))
            for run in runs
        ]
        left = work.affine(beta, -1.0, 1.0)
        all_values = sums(work.binary("mul", v, beta), left, work.part(phases, 1, 0, r), before["tilde_v"])
        if scope.keeps_state(x) and length:
            ends = [
                work.reshape(work.last(of, 1), (batch, b - a, heads, self.features))
                for of, (a, b) in zip(all_keys, runs, strict=True)
            ]
            last = work.concat(ends, 1)
            scope.keep_state("tilde_k", work.part(last, 1, 0, r))
            scope.keep_state("s", work.reshape(work.part(last, 1, r, r + 1), (batch, heads, self.features)))
            scope.keep_state("tilde_v", work.reshape(work.last(all_values, 1), (batch, r, heads, width)))
        queries, met = outer(q, p2, "relu"), list[int]()
        for of, (a, b) in zip(all_keys, runs, strict=True):
            each = work.binary("mul", work.reshape(of, (rows, b - a, keys)), queries)
            met.append(work.reduce(work.reshape(each, (rows, b - a, heads, self.features)), "sum", (3,)))
        all_met = work.concat(met, 1)
        read = work.binary("mul", work.reshape(all_values, (rows, r, heads, width)), work.part(all_met, 1, 0, r))
        read = work.reshape(work.reduce(read, "sum", (1,)), (rows, heads, width))
        whole = work.affine(work.reshape(work.part(all_met, 1, r, r + 1), (rows, heads, 1)), 2.0 * r, self.eps)
        y = work.reshape(work.binary("div", read, whole), (*work.shape(x)[:-1], heads * width))
        with work.at(scope.path, mixes=False):
            return linear(work, p, ("out.",), y)


_FEW: Final = 16
"""Most rows of a window for which one scan sums all phases: launches and steps cost more than memory traffic."""


def _phases(scope: Scope, spec: AGaLiTe, x: int) -> int:
    """Emit the cosines of each row's number, and 1 for s, ``[rows, r + 1, 1]``; stores the number as a state."""
    work, period = scope.work, spec.period
    batch, length, _ = work.shape(scope.as_sequences(x))
    one = work.constant(np.ones(1), "one")
    steps = work.broadcast(work.reshape(one, (1, 1, 1)), (batch, length, 1))
    count = emit_linear_scan(work, steps, one, start_state(scope, x, "tick", (1,)), scope.keep_mask(x))
    laps = work.unary(work.affine(count, 1 / period, 0.5 / period), "floor")
    tick = work.binary("sub", count, work.affine(laps, float(period)))
    if scope.keeps_state(x) and length:
        scope.keep_state("tick", work.reshape(work.last(tick, 1), (batch, 1)))
    places = np.arange(period)[None]
    rows = work.reshape(tick, (batch * length, 1))
    above = [work.binary("greater", rows, work.constant(places + edge, "places")) for edge in (-0.5, 0.5)]
    table = np.concatenate([spec.phases(), np.ones((period, 1))], 1)
    chosen = work.reshape(work.binary("sub", *above), (1, batch * length, period))
    cosines = work.gemm(chosen, work.constant(table[None], "cosines"))
    return work.reshape(cosines, (batch * length, spec.r + 1, 1))
