"""Recurrent layers with torch's equations and gate order: RNN, LSTM and GRU.

Elman 1990; Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000; Cho et al. 2014 (arXiv 1406.1078)
in the form that applies the reset gate after the product. Gradients go back through every step of a call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.numeric.recurrent_cell import Cell
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_fields import keep_width, positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
    layer_base,
)


@layer_base
class Recurrent(LayerSpec):
    """What the recurrent layers share: the loop over the steps of a sequence.

    Sequences are ``[T, input_size]`` or ``[B, T, input_size]``; the output is h of every step. Each step computes its
    cell from ``x Wihᵀ + bih`` and ``h Whhᵀ + bhh``. The blocks of a cell are stacked, so Wih is
    ``[blocks · hidden_size, input_size]``. The first state is zeros. A call continues from the state of the steps
    before it, so a sequence may be split into several calls. A reset clears the state. Gradients go back through all
    steps of a call; the state before the call is a constant. With `reverse` a call begins with zeros at its last step,
    keeps no state, and sees no row beyond a reset. This is the backward direction of a bidirectional layer.

    Attributes
    ----------
    input_size : features of a step of input
    hidden_size : features of the state; as many as of a step of input if left out
    bias : whether there are bih and bhh
    reverse : whether the steps run from the last to the first
    fresh : initialisation: uniform with biases of 0, or ``"orthogonal"`` with biases of 1
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    input_size: int = positional()
    hidden_size: int = positional(default=None)
    bias: bool = True
    reverse: bool = False
    fresh: Literal["uniform", "orthogonal"] = "uniform"

    def __post_init__(self) -> None:
        """Check the fields."""
        keep_width(self, "hidden_size", "input_size")
        expect_positive(self, "input_size", "hidden_size")
        if self.fresh not in ("uniform", "orthogonal"):
            raise SpecError(f"{self.kind}: fresh must be 'uniform' or 'orthogonal', got {self.fresh!r}")

    @property
    def cell(self) -> Cell:
        """The cell of each step."""
        return CELLS[self.kind]

    def params(self) -> tuple[ParamSpec, ...]:
        wide = self.cell.blocks * self.hidden_size
        params = (
            *affine_params("ih.", wide, self.input_size, bias=self.bias),
            *affine_params("hh.", wide, self.hidden_size, bias=self.bias),
        )
        if self.fresh == "uniform":
            return params
        return tuple(replace(param, init="orthogonal" if len(param.shape) > 1 else "ones") for param in params)

    @property
    def two_way(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on a field)
        """Whether rows see later rows."""
        return self.reverse

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if self.reverse or not is_sequence(*inputs):
            return ()
        return tuple(StateSpec(name=name, shape=(self.hidden_size,), kind="fixed") for name in self.cell.states)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.input_size)
        return (*inputs[0][:-1], self.hidden_size)

    def emit(self, scope: Scope, x: int) -> int:
        work, p, size, cell = scope.work, scope.params(self), self.hidden_size, self.cell
        with work.at(scope.path, mixes=False):
            from_x = linear(work, p, ("ih.",), x)
        keeps = scope.keeps_state(x) and not self.reverse
        if keeps and work.is_native("recurrence", (x, *p.values())):
            by_role = {"x": from_x, "weight.0": p["hh.weight"]} | ({"bias.0": p["hh.bias"]} if self.bias else {})
            by_role |= {name: scope.state(name, (1, size)) for name in cell.states}
            parts = work.shape(p["hh.weight"])[:1]
            inputs, roles = tuple(by_role.values()), tuple(by_role)
            return work.emit("recurrence", inputs, roles=roles, cell=cell.name, parts=parts)[0]
        keep = scope.keep_mask(x, reverse=self.reverse)
        from_x = scope.as_sequences(from_x)
        if self.reverse:
            from_x = work.flip(from_x, 1)
        batch, length, _ = work.shape(from_x)
        if keeps:
            starts = [scope.state(name, (batch, size)) for name in cell.states]
        else:
            starts = [work.zeros((batch, size))] * len(cell.states)
        y, *others = work.recurrent(cell.name, from_x, p["hh.weight"], starts, p.get("hh.bias"), keep)
        if keeps and length:
            ends = (work.reshape(work.last(y, 1), (batch, size)), *others)
            for name, of in zip(cell.states, ends, strict=False):
                scope.keep_state(name, of)
        y = work.flip(y, 1) if self.reverse else y
        return work.reshape(y, (*work.shape(x)[:-1], size))


@layer("rnn")
class RNN(Recurrent):
    """A plain recurrent network; loop, shapes and states as in `Recurrent`.

    ::

        h_t = act(x_t Wihᵀ + bih + h_{t−1} Whhᵀ + bhh),   h_0 = 0,   y_t = h_t

    Elman 1990.

    Attributes
    ----------
    nonlinearity : act, tanh or relu
    """

    nonlinearity: Literal["tanh", "relu"] = "tanh"

    def __post_init__(self) -> None:
        """Check the fields."""
        Recurrent.__post_init__(self)
        if self.nonlinearity not in ("tanh", "relu"):
            raise SpecError(f"rnn: unknown nonlinearity {self.nonlinearity!r}", hint="one of tanh, relu")

    @property
    def cell(self) -> Cell:
        return CELLS[f"rnn_{self.nonlinearity}"]


@layer("lstm")
class LSTM(Recurrent):
    """A long short-term memory; loop, shapes and states as in `Recurrent`.

    ::

        [i, f, g, o] = [σ, σ, tanh, σ](x_t Wihᵀ + bih + h_{t−1} Whhᵀ + bhh)            blocks in this order
        c_t = f ⊙ c_{t−1} + i ⊙ g
        h_t = o ⊙ tanh(c_t)

    Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000.
    """


@layer("gru")
class GRU(Recurrent):
    """A gated recurrent unit; loop, shapes and states as in `Recurrent`.

    ::

        [xr, xz, xn] = x_t Wihᵀ + bih        [hr, hz, hn] = h_{t−1} Whhᵀ + bhh
        r = σ(xr + hr),   z = σ(xz + hz),   n = tanh(xn + r ⊙ hn)
        h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}

    Cho et al. 2014 (arXiv 1406.1078), in the form that applies the reset gate after the product.
    """
