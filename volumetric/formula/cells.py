"""Recurrent cells, one entry each: the states after a step from pre-activations and previous states, and the gradients.

``x0``, ``x1``, … are the blocks of pre-activations computed from the input of a step, ``r0``, ``r1``, … those computed
from the output of the step before. A state has its plain name before the step and the suffix ``_after`` after it; the
prefix ``g_`` marks its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Final

from volumetric.formula.derivative import derivative
from volumetric.formula.elementary import exp, sigmoid, smaller, softplus, tanh
from volumetric.formula.expression import Expression, equal, substitute, variable, variables, where

EPS: Final = 1e-6
"""Constant added to the normaliser of an slstm."""


@dataclass(frozen=True, slots=True)
class CellGradients:
    """The gradients of a step's inputs, from the gradients of the states after it and from the values it keeps.

    Attributes
    ----------
    x, r : gradients of the pre-activations, block by block
    direct : state → gradient of its previous value along paths other than ``r``
    """

    x: tuple[Expression, ...]
    r: tuple[Expression, ...]
    direct: Mapping[str, Expression]


@dataclass(frozen=True)
class CellFormula:
    """A recurrent cell.

    Attributes
    ----------
    blocks : number of pre-activations of a hidden unit, each for ``x`` and ``r``
    after : state → its value after the step; the first one is the output
    keeps : name → value of a unit that `back` needs in addition to the states
    direct : states with a gradient path other than through ``r``
    own_back : hand-written backward pass; None: `derived`
    """

    blocks: int
    after: Mapping[str, Expression]
    keeps: Mapping[str, Expression] = field(default_factory=dict)
    direct: tuple[str, ...] = ()
    own_back: CellGradients | None = None

    @cached_property
    def back(self) -> CellGradients:
        """The backward pass."""
        return self.own_back or self.derive_back

    @property
    def derive_back(self) -> CellGradients:
        """The backward pass by automatic differentiation; kept values and states after the step are not recomputed."""
        known = {value: variable(name) for name, value in self.keeps.items()}
        known |= {value: variable(f"{name}_after") for name, value in self.after.items() if value.args}
        whole = reduce(lambda a, b: a + b, (variable(f"g_{name}") * value for name, value in self.after.items()))

        def by(name: str) -> Expression:
            return substitute(derivative(whole, variable(name)), known)

        x, r = (tuple(by(f"{kind}{i}") for i in range(self.blocks)) for kind in "xr")
        return CellGradients(x, r, {name: by(name) for name in self.direct})


_X = variables("x0 x1 x2 x3")
_R = variables("r0 r1 r2 r3")
_PRE = tuple(x + r for x, r in zip(_X, _R, strict=True))
_GH: Final = variable("g_h")


def _same(*pre: Expression, **direct: Expression) -> CellGradients:
    return CellGradients(pre, pre, direct)


def _plain(value: Expression, back: Expression) -> CellFormula:
    return CellFormula(1, {"h": value}, own_back=_same(back))


def _lstm() -> CellFormula:
    i, f, g, o = sigmoid(_PRE[0]), sigmoid(_PRE[1]), tanh(_PRE[2]), sigmoid(_PRE[3])
    after = f * variable("c") + i * g
    states, keeps = {"h": o * tanh(after), "c": after}, {"i": i, "f": f, "g": g, "o": o}
    i, f, g, o, c, gc = variables("i f g o c g_c")
    bounded = tanh(variable("c_after"))
    gc = _GH * o * (1 - bounded * bounded) + gc
    pre = gc * g * i * (1 - i), gc * c * f * (1 - f), gc * i * (1 - g * g), _GH * bounded * o * (1 - o)
    return CellFormula(4, states, keeps, ("c",), _same(*pre, c=gc * f))


def _gru() -> CellFormula:
    r, z, hn, h = sigmoid(_PRE[0]), sigmoid(_PRE[1]), _R[2], variable("h")
    n = tanh(_X[2] + r * hn)
    states, keeps = {"h": (1 - z) * n + z * h}, {"r": r, "z": z, "n": n, "hn": hn}
    r, z, n, hn = variables("r z n hn")
    g_n, g_z = _GH * (1 - z) * (1 - n * n), _GH * (h - n) * z * (1 - z)
    g_r = g_n * hn * r * (1 - r)
    return CellFormula(3, states, keeps, ("h",), CellGradients((g_r, g_z, g_n), (g_r, g_z, g_n * r), {"h": _GH * z}))


def _slstm() -> CellFormula:
    i, f = _PRE[:2]
    z, o, s = tanh(_PRE[2]), sigmoid(_PRE[3]), sigmoid(f)
    c, n, m = variables("c n m")
    passed = m - softplus(-f)  # m is the logarithm of the largest gate so far, σ(f) its factor in this step
    most = where(equal(n, 0.0), i, where(i > passed, i, passed))
    open_i, open_f = exp(i - most), exp(smaller(passed - most, 0.0))
    memory, whole = z * open_i + open_f * c, open_i + open_f * n
    states = {"y": o * memory / (whole + EPS), "c": memory, "n": whole, "m": most}
    keeps = {"i": open_i, "f": open_f, "z": z, "o": o, "s": s}
    i, f, z, o, s, memory, g, gc, gn, gm = variables("i f z o s c_after g_y g_c g_n g_m")
    inverse = 1 / (variable("n_after") + EPS)
    along = g * inverse
    gc, gn = gc + along * o, gn - along * o * memory * inverse
    by_i, by_f = (gc * z + gn) * i, (gc * c + gn * n) * f
    fresh, first = equal(n, 0.0), equal(i, 1.0)  # if gates are equal, the gate i gave the largest
    by_f = where(fresh & equal(f, 1.0), 0.0, by_f)  # it is below the gate i there: both have that exponent
    rest = gm - by_i - by_f
    to_f = by_f + where(fresh | first, 0.0, rest)
    pre = by_i + where(fresh | first, rest, 0.0), to_f * (1 - s), gc * i * (1 - z * z), along * memory * o * (1 - o)
    return CellFormula(4, states, keeps, ("c", "n", "m"), _same(*pre, c=gc * f, n=gn * f, m=to_f))


_H_AFTER: Final = variable("h_after")
CELLS: Final[dict[str, CellFormula]] = {
    "rnn_tanh": _plain(tanh(_PRE[0]), _GH * (1 - _H_AFTER * _H_AFTER)),
    "rnn_relu": _plain(where(_PRE[0] <= 0, 0.0, _PRE[0]), where(_H_AFTER <= 0, 0.0, _GH)),
    "lstm": _lstm(),
    "gru": _gru(),
    "slstm": _slstm(),  # exponential gates over a running maximum: xLSTM, Beck et al. 2024 (arXiv 2405.04517)
}
"""Name → cell."""
