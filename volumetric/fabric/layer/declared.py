"""What a fabric is declared of besides its graph: populations of cells, and ports."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base.errors import SpecError
from volumetric.base.hints import shown
from volumetric.fabric.layer.places import Nodes, nodes_of
from volumetric.layers.checks import check_choice, check_text, check_whole
from volumetric.layers.head_norm import warn_of_narrow_heads

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_TILE = re.compile(r"tile\((\d{1,6}(?:,\d{1,6}){0,3})\)")


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SpecError(
            f"{what} cannot be called {shown(name)}",
            hint='a letter or "_", then letters, digits, "_" and "-", 64 in all',
        )


class SLSTM(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="slstm"):
    """An LSTM whose input and forget gates are exponential, on rows ``[…, T, E]``.

    ::

        x̃ = silu(conv(x))                                               x itself without a convolution
        g̃ = W_g (x̃ or x) + R_g y_{t−1} + b_g                            i, f read x̃; z, o read x; each head alone
        λ = m_{t−1} + log σ(f̃)
        m = max(ĩ, λ)                                                   ĩ where n_{t−1} = 0
        i = exp(ĩ − m)        f = min(exp(λ − m), 1)
        c = f c_{t−1} + i tanh(z̃)        n = f n_{t−1} + i        y = σ(õ) c / (n + 10⁻⁶)
        out = (y − mean) / √(var + 10⁻⁵) ⊙ w                             mean and variance of each head

    All that gates add up is divided by exp(m), the largest of them so far, so that nothing overflows; n counts what was
    added, and y is a weighted mean. The recurrence reads y before its norm.

    The gates' matrices are ``[heads, out, in]`` with out = in = E / heads, R ``[4, heads, out, in]`` and b
    ``[4, heads, out]`` with the gates in the order i, f, z, o. Gates and states are computed in float32 whatever the
    type of the weights. A sequence leaves behind y, c, n and m ``[E]``, and the last rows that the convolution saw. A
    reset makes them zeros; in gradients they are constants.

    A fresh layer has R = 0, matrices of deviation √(2 / (5 in)), and biases of the forget gate from 3 to 6 within each
    head. What the maps of ``projection="axon"`` keep and learn stands below ``if/`` and ``zo/``. Heads of one number
    (``num_heads = embed_dim``) are always 0 behind their norm, of which there is a warning.

    Beck et al. 2024 (arXiv 2405.04517).
    """

    hidden: int
    heads: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("SLSTM: hidden", self.hidden)
        check_whole("SLSTM: heads", self.heads)
        if self.hidden % self.heads:
            raise SpecError(f"SLSTM: {self.heads} heads do not divide a width of {self.hidden}")
        if self.silent:
            warn_of_narrow_heads("SLSTM", self.heads)

    @property
    def silent(self) -> bool:
        """Whether what it shows is always 0, as its norm makes heads of one number."""
        return self.heads == self.hidden


class Axon(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="axon"):
    """Pairs of numbers that turn and shrink from row to row, on rows ``[…, T, in_features]``.

    ::

        r = exp(−exp(ν))     θ = exp(ϑ)     g = r cos θ     φ = r sin θ     γ = √(1 − r²)
        x̂ = Wₓ x                                                         or a fixed transform, or x itself
        c₁ ← g c₁ − φ c₂ + γ w₁ x̂        c₂ ← g c₂ + φ c₁ + γ w₂ x̂       both from the values before
        y = W [act(c₁); act(c₂)] + b

    This is a linear recurrence of complex numbers, whose gradients and states are as cheap over a million rows as over
    ten. A sequence leaves behind c₁ and c₂ ``[hidden]``; a reset makes them zeros.

    With `traces` it also leaves behind how c depends on ν, ϑ, w₁ and w₂ ``[8, hidden]``, which turns as c does.
    Training in windows that carry their states on then finds for these four the gradients of the whole sequence, back
    to its last reset, with windows of any length, one row too. Gradients of Wₓ and of layers before stop at the
    window's first row, as in every recurrent layer.

    A fresh layer spreads r evenly over the ring between `r_min` and `r_max` and θ between 0 and `max_phase`; w₁ and w₂
    are uniform in ±1/√hidden, Wₓ is orthogonal.

    Elelimy et al. 2024 (arXiv 2409.01449); r and θ as in Orvieto et al. 2023 (arXiv 2303.06349).

    Attributes
    ----------
    mix : how inputs come to pairs: ``"linear"`` by a matrix; ``"srht"`` by one that need not be stored: the inputs in a
        random order with random signs through a Walsh-Hadamard transform of length 1, for a width that is a power of
        two; ``"none"``: as they are
    """

    hidden: int
    width: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Axon: hidden", self.hidden)
        if self.width is not None:
            check_whole("Axon: width", self.width)

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.width or self.hidden


class LSTM(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="lstm"):
    """A long short-term memory; loop, shapes and states as in `Recurrent`.

    ::

        [i, f, g, o] = [σ, σ, tanh, σ](x_t Wihᵀ + bih + h_{t−1} Whhᵀ + bhh)            blocks in this order
        c_t = f ⊙ c_{t−1} + i ⊙ g
        h_t = o ⊙ tanh(c_t)

    Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000.
    """

    hidden: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("LSTM: hidden", self.hidden)


class GRU(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="gru"):
    """A gated recurrent unit; loop, shapes and states as in `Recurrent`.

    ::

        [xr, xz, xn] = x_t Wihᵀ + bih        [hr, hz, hn] = h_{t−1} Whhᵀ + bhh
        r = σ(xr + hr),   z = σ(xz + hz),   n = tanh(xn + r ⊙ hn)
        h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}

    Cho et al. 2014 (arXiv 1406.1078), in the form that applies the reset gate after the product.
    """

    hidden: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("GRU: hidden", self.hidden)


class RNN(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="rnn"):
    """A plain recurrent network; loop, shapes and states as in `Recurrent`.

    ::

        h_t = act(x_t Wihᵀ + bih + h_{t−1} Whhᵀ + bhh),   h_0 = 0,   y_t = h_t

    Elman 1990.

    Attributes
    ----------
    nonlinearity : act, tanh or relu
    """

    hidden: int
    nonlinearity: Literal["tanh", "relu"] = "tanh"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("RNN: hidden", self.hidden)
        check_choice("RNN: nonlinearity", self.nonlinearity, ("tanh", "relu"))


AGGREGATES = ("mean", "flatten", "attend")
"""How an output makes one row of what its nodes read."""

Cell: TypeAlias = SLSTM | Axon | LSTM | GRU | RNN
"""What every node of a population is."""


class Population(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes with cells of one kind.

    Attributes
    ----------
    name : of its parameters and states
    cell : what each node is
    nodes : which; None: all recurrent nodes that no other population names
    share : whose weights are one: ``"none"``, ``"all"``, or those of nodes in a tile, ``"tile(4,4)"``
    """

    name: str
    cell: Cell
    nodes: Nodes | None = None
    share: str = "none"

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name(self.name, "a population")
        if not isinstance(self.cell, Cell):
            raise SpecError(f"population {self.name!r}: cell is no cell, got {shown(self.cell)}", hint="GRU(hidden=32)")
        if self.nodes is not None:
            force_setattr(self, "nodes", nodes_of(f"population {self.name!r}: nodes", self.nodes))
        check_text(f"population {self.name!r}: share", self.share)
        if self.share not in ("none", "all") and self.tile is None:
            raise SpecError(
                f"population {self.name!r}: unknown share {self.share!r}", hint='"none", "all", or "tile(4,4)"'
            )

    @property
    def tile(self) -> tuple[int, ...] | None:
        """Sides of the tiles that share weights."""
        found = _TILE.fullmatch(self.share.replace(" ", ""))
        return None if found is None else tuple(map(int, found[1].split(",")))


class InPort(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An input: part of a row, `dim` numbers, that its nodes show, each through a matrix of its own."""

    name: str
    nodes: Nodes
    dim: int

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name(self.name, "an input")
        force_setattr(self, "nodes", nodes_of(f"input {self.name!r}: nodes", self.nodes))
        check_whole(f"input {self.name!r}: dim", self.dim)


class OutPort(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An output: part of a row, `dim` numbers, made of what its nodes read.

    Attributes
    ----------
    aggregate : how: the ``"mean"`` of its nodes, all of them side by side (``"flatten"``), or by `slots` learned
        queries that attend over them (``"attend"``)
    """

    name: str
    nodes: Nodes
    dim: int
    aggregate: Literal["mean", "flatten", "attend"] = "mean"
    slots: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name(self.name, "an output")
        force_setattr(self, "nodes", nodes_of(f"output {self.name!r}: nodes", self.nodes))
        check_whole(f"output {self.name!r}: dim", self.dim)
        check_whole(f"output {self.name!r}: slots", self.slots)
        check_choice(f"output {self.name!r}: aggregate", self.aggregate, AGGREGATES)
