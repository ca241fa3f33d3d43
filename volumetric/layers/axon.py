"""Axon: a linear recurrence of pairs that rotate and decay, with traces for exact online gradients.

The cell is the recurrent trace unit of Elelimy et al. 2024 (arXiv 2409.01449), whose parameters are those of the linear
recurrent unit (Orvieto et al. 2023, arXiv 2303.06349).
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.activations import Activation
from volumetric.graph.operations.rotate_scan import rotate_scan as emit_rotate_scan
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear, start_state
from volumetric.layers.layer_fields import activation_name, by_keyword, positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)

Mix = Literal["linear", "srht", "none"]
LEAST = 1e-12
"""Lower bound of 1 - r²."""
TRACED = ("nu", "theta", "w1", "w2")
"""Parameters that have traces, in their order."""


@layer("axon")
class Axon(LayerSpec):
    """A linear recurrence of pairs that turn and shrink from row to row, on rows ``[…, T, in_features]``.

    ::

        r = exp(−exp(ν))     θ = exp(ϑ)     g = r cos θ     φ = r sin θ     γ = √(1 − r²)
        x̂ = Wₓ x                                                         or a fixed transform, or x itself
        c₁ ← g c₁ − φ c₂ + γ w₁ x̂        c₂ ← g c₂ + φ c₁ + γ w₂ x̂       both from the values before
        y = W [act(c₁); act(c₂)] + b

    Each pair is a complex number. Gradients and states cost as little over a million rows as over ten. The state of a
    sequence is c₁ and c₂ ``[hidden]``; a reset sets them to zero.

    With `traces` the state also has the derivatives of c by ν, ϑ, w₁ and w₂, ``[8, hidden]``, which turn as c does.
    Training in windows that carry their states then computes the gradients of these four over the whole sequence, back
    to its last reset. It does so with windows of any length, even of one row. Gradients of Wₓ and of earlier layers
    stop at the window's first row, as in every recurrent layer.

    Initialisation: r is spread evenly over the ring between `r_min` and `r_max`, and θ between 0 and `max_phase`. w₁
    and w₂ are uniform in ±1/√hidden. Wₓ is orthogonal.

    Elelimy et al. 2024 (arXiv 2409.01449); r and θ as in Orvieto et al. 2023 (arXiv 2303.06349).

    Attributes
    ----------
    in_features, out_features : widths of input and output
    hidden_features : number of pairs; None: as many as input features
    activation : of the pairs, before W
    mix : map from inputs to pairs: ``"linear"`` is a matrix; ``"srht"`` is a fixed transform that is not stored: the
        inputs in a random order with random signs through a Walsh-Hadamard transform of length 1, for a width that is a
        power of two; ``"none"`` is the identity
    r_min, r_max, max_phase : bounds of r and of θ at initialisation
    traces : whether the state has traces
    seed : of the signs and the order of ``"srht"``
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    in_features: int = positional()
    out_features: int = positional()
    hidden_features: int | None = None
    activation: Activation = by_keyword(default="linear", converter=activation_name)
    mix: Mix = "linear"
    r_min: float = 0.0
    r_max: float = 1.0
    max_phase: float = 6.28
    traces: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        optional = () if self.hidden_features is None else ("hidden_features",)
        expect_positive(self, "in_features", "out_features", *optional)
        if self.mix not in ("linear", "srht", "none"):
            raise SpecError(f"axon: unknown mix {self.mix!r}", hint="one of linear, srht, none")
        if self.mix != "linear" and self.hidden != self.in_features:
            raise SpecError(
                f"axon: {self.in_features} features need mix='linear' to become {self.hidden} pairs",
                hint='omit hidden_features, or set mix="linear"',
            )
        if self.mix == "srht" and self.hidden & (self.hidden - 1):
            raise SpecError(f"axon: a Walsh-Hadamard transform needs a power of two, got {self.hidden} features")
        if not 0 <= self.r_min < self.r_max <= 1 or not self.max_phase > 0:
            raise SpecError(
                f"axon: r cannot be between {self.r_min} and {self.r_max}, or θ between 0 and {self.max_phase}",
                hint="expected 0 ≤ r_min < r_max ≤ 1, and max_phase above 0",
            )

    @property
    def hidden(self) -> int:
        """Number of pairs."""
        return self.hidden_features or self.in_features

    def params(self) -> tuple[ParamSpec, ...]:
        n, bound = self.hidden, float(self.hidden**-0.5)
        own = (
            ParamSpec(name="nu", shape=(n,), init="ring", bounds=(self.r_min, self.r_max), packable=False),
            ParamSpec(name="theta", shape=(n,), init="log_uniform", bounds=(0.0, self.max_phase), packable=False),
            *(
                ParamSpec(name=name, shape=(n,), init="uniform", bounds=(-bound, bound), packable=False)
                for name in ("w1", "w2")
            ),
        )
        mixed = affine_params("input.", n, self.in_features, bias=False, init="orthogonal")
        return (
            *own,
            *(mixed if self.mix == "linear" else ()),
            *affine_params("out.", self.out_features, 2 * n, bias=True),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        shapes = {"c1": (self.hidden,), "c2": (self.hidden,)} | ({"traces": (8, self.hidden)} if self.traces else {})
        return tuple(StateSpec(name=name, shape=shape, kind="fixed") for name, shape in shapes.items())

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.out_features)

    def transform(self) -> Array:
        """Return the matrix of ``"srht"``, ``[hidden, in_features]``."""
        n = self.hidden
        rng = np.random.Generator(np.random.Philox(self.seed))
        order, signs = np.argsort(rng.random(n)), np.where(rng.random(n) < 0.5, -1.0, 1.0)
        whole = np.ones((1, 1))
        while len(whole) < n:
            whole = np.block([[whole, whole], [whole, -whole]])
        return ((whole * signs) @ np.eye(n)[order]) / np.sqrt(n)

    def emit(self, scope: Scope, x: int) -> int:
        work, p, n = scope.work, scope.params(self), self.hidden
        mixed = x
        if self.mix == "linear":
            with work.at(scope.path, mixes=False):
                mixed = linear(work, p, ("input.",), x)
        elif self.mix == "srht":
            mixed = linear(work, {"weight": work.constant(self.transform(), "transform")}, ("",), x)
        # First: devices may run a concat of rows as a fused operation, and the following values have no rows.
        state = work.concat([start_state(scope, x, name, (n,)) for name in ("c1", "c2")], 1)
        of, keep, mixed = turn_nodes(work, p), scope.keep_mask(x), scope.as_sequences(mixed)
        batch, length, _ = work.shape(mixed)
        driven = work.binary("mul", mixed, of.gamma)
        u = work.concat([work.binary("mul", driven, p[name]) for name in ("w1", "w2")], 2)
        traced = self.traces and scope.keeps_state(x)
        first = _with_history(scope, p, state, n) if traced else state
        s = emit_rotate_scan(work, u, of.g, of.phi, first, keep)
        if traced and length:
            before = _states_before(work, s, state, keep)
            scope.keep_state("traces", _traces(scope, p, of, before, mixed, driven, keep))
        if scope.keeps_state(x) and length:
            last = work.reshape(work.last(s, 1), (batch, 2 * n))
            for at, name in enumerate(("c1", "c2")):
                scope.keep_state(name, work.part(last, 1, at * n, (at + 1) * n))
        read = work.unary(work.reshape(s, (*work.shape(x)[:-1], 2 * n)), self.activation)
        with work.at(scope.path, mixes=False):
            return linear(work, p, ("out.",), read)


class TurnNodes(NamedTuple):
    """The factors of `Axon`, with the derivative of γ by ν; all ``[hidden]``."""

    rate: int
    angle: int
    g: int
    phi: int
    gamma: int
    gamma_slope: int


def turn_nodes(work: GraphBuilder, p: dict[str, int]) -> TurnNodes:
    """Emit the factors that follow from ν and ϑ."""
    rate, angle = work.unary(p["nu"], "exp"), work.unary(p["theta"], "exp")
    r = work.unary(work.unary(rate, "neg"), "exp")
    square = work.unary(r, "square")
    gamma = work.unary(work.binary("max", work.affine(square, -1.0, 1.0), work.scalar(LEAST)), "sqrt")
    g, phi = (work.binary("mul", r, work.unary(angle, name)) for name in ("cos", "sin"))
    return TurnNodes(rate, angle, g, phi, gamma, work.binary("div", work.binary("mul", rate, square), gamma))


def _with_history(scope: Scope, p: dict[str, int], state: int, n: int) -> int:
    """Return c before the window with gradients to the traced parameters: adds ``traces · (p - p)``, which is 0."""
    work, batch = scope.work, scope.work.shape(state)[0]
    traces = work.reshape(scope.state("traces", (batch, 8, n)), (batch, 4, 2 * n))
    changes = []
    for name in TRACED:
        fixed = work.emit("unary", (p[name],), name="affine", alpha=1.0, beta=0.0)[0]
        work.detached.add(fixed)
        change = work.reshape(work.binary("sub", p[name], fixed), (1, n))  # 0
        changes.append(work.reshape(work.concat((change, change), 1), (1, 1, 2 * n)))
    moved = work.reduce(work.binary("mul", traces, work.concat(changes, 1)), "sum", (1,))
    return work.binary("add", state, work.reshape(moved, (batch, 2 * n)))


def _states_before(work: GraphBuilder, s: int, state: int, keep: int | None) -> int:
    """Emit c before each row, 0 after a reset."""
    batch, length, wide = work.shape(s)
    if length < 0:
        rows = work.emit("delay", (work.reshape(s, (length, wide)), state))[0]
        return work.reshape(rows, (batch, length, wide))
    first = work.reshape(state, (batch, 1, wide))
    before = work.concat((first, work.part(s, 1, 0, length - 1)), 1) if length > 1 else first
    return before if keep is None else work.binary("mul_nonzero", before, work.reshape(keep, (batch, length, 1)))


def _traces(
    scope: Scope, p: dict[str, int], of: TurnNodes, before: int, mixed: int, driven: int, keep: int | None
) -> int:
    """Emit the traces after the window: the derivatives of c by parameters rotate like c."""
    work, (batch, length, n) = scope.work, scope.work.shape(mixed)
    c1, c2 = work.split(before, (n, n), 2)

    def turn_pair(rate: int, g: int, phi: int) -> list[int]:
        """``rate · (g c₁ - φ c₂)`` and ``rate · (g c₂ + φ c₁)``."""
        pairs = ("sub", c1, c2), ("add", c2, c1)
        sides = (work.binary(of, work.binary("mul", a, g), work.binary("mul", b, phi)) for of, a, b in pairs)
        return [work.binary("mul", each, rate) for each in sides]

    slope = work.binary("mul", mixed, of.gamma_slope)
    moved = turn_pair(work.unary(of.rate, "neg"), of.g, of.phi)
    by_nu = [work.binary("add", at, work.binary("mul", slope, p[w])) for at, w in zip(moved, ("w1", "w2"), strict=True)]
    by_theta = turn_pair(of.angle, work.unary(of.phi, "neg"), of.g)
    none = work.zeros((batch, length, n))
    u = work.concat((by_nu[0], by_theta[0], driven, none, by_nu[1], by_theta[1], none, driven), 2)
    g, phi = (work.concat((one,) * 4, 0) for one in (of.g, of.phi))
    history = work.reshape(scope.state("traces", (batch, 8, n)), (batch, 4, 2, n))
    history = work.reshape(work.permute(history, (0, 2, 1, 3)), (batch, 8 * n))
    every = emit_rotate_scan(work, u, g, phi, history, keep)
    last = work.permute(work.reshape(work.last(every, 1), (batch, 2, 4, n)), (0, 2, 1, 3))
    return work.reshape(last, (batch, 8, n))
