"""The base of all scaffolds: the nested layer, and how its results join the input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.containers import Container, Residual, prefixed_params
from volumetric.layers.emit_scope import Scope, as_rows, emit_gated, emit_join, linear
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    show_shape,
)
from volumetric.layers.norm import LayerNorm
from volumetric.layers.scaffolds.gru_gate import gru_gate_params

if TYPE_CHECKING:
    from volumetric.layers.scaffolds.column import Column

CORE = "core"
"""Path of the nested layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold(Container):
    """Base of containers with one layer inside: a recurrent core, or another scaffold.

    Attributes
    ----------
    core : the layer inside
    """

    children_field: ClassVar[str | None] = CORE

    core: LayerSpec

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.core, LayerSpec):
            raise SpecError(f"{self.kind}: core must be a layer, got {self.core!r}")
        if isinstance(self.core, Residual):
            raise SpecError(f"{self.kind}: a residual cannot be the core", hint="wrap it in a sequential")

    def own_specs(self) -> tuple[ParamSpec, ...]:
        """Return the parameters of the scaffold without those of the nested layer."""
        return ()

    def params(self) -> tuple[ParamSpec, ...]:
        return *self.own_specs(), *prefixed_params(self.children())

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = self.reads(CORE, inputs[0])
        try:
            return self.core.output_shape(shape)
        except ShapeError as error:
            raise ShapeError(f"core of {self.kind}: {error}", hint=error.hint) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WideningScaffold(Scaffold):
    """Base of scaffolds that keep the width of their rows and have products to another.

    Attributes
    ----------
    embed_dim : width of input and output
    factor : the other width is this times `embed_dim`, rounded down
    core : the layer inside
    """

    gated: ClassVar[bool] = False
    """Whether gates replace the residual sums."""

    embed_dim: int
    factor: float

    def __post_init__(self) -> None:
        """Check the fields."""
        Scaffold.__post_init__(self)
        expect_positive(self, "embed_dim")
        if isinstance(self.factor, bool) or not self.factor > 0 or not 1 <= self.factor * self.embed_dim < 2**31:
            raise SpecError(
                f"{self.kind}: factor {self.factor} times embed_dim {self.embed_dim} must be a width of at least 1"
            )

    @property
    def hidden_size(self) -> int:
        """The other width."""
        return int(self.factor * self.embed_dim)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        core_output, core_input = Scaffold.output_shape(self, *inputs), self.reads(CORE, inputs[0])
        if core_output != core_input:
            raise ShapeError(
                f"core of {self.kind}: maps {show_shape(core_input)} to {show_shape(core_output)}, expected the same"
            )
        return inputs[0]

    def join_params(self, name: str) -> tuple[ParamSpec, ...]:
        """Return the parameters of a residual sum that may be a gate, below the path `name`."""
        return gru_gate_params(name, self.embed_dim) if self.gated else ()


def own_params(scope: Scope, spec: Scaffold | Column) -> dict[str, int]:
    """Return the tensors of the parameters of a scaffold without those of the nested layer."""
    return {p.name: scope.param(p.name, p.shape) for p in spec.own_specs()}


def emit_inside(scope: Scope, path: str, spec: LayerSpec, x: int) -> int:
    """Emit a nested layer; only its nodes are marked as mixing rows."""
    with scope.work.at(scope.path, mixes=spec.contextual or spec.batch_statistics == "always"):
        return scope.child(path).emit(spec, x)


def emit_layer_norm(work: GraphBuilder, norm: LayerNorm, gain: int, x: int, bias: int | None = None) -> int:
    """Emit a layer norm of the last axis."""
    return work.reshape(work.norm(as_rows(work, x), gain, bias, kind="layer", eps=norm.eps), work.shape(x))


def join_nodes(work: GraphBuilder, gates: bool, p: Mapping[str, int], name: str, x: int, f: int) -> int:
    """Emit ``x + f``, or the output of the gate `name` on both."""
    if not gates:
        return emit_join(work, (x, f), "add")

    def product(matrix: str, of: int) -> int:
        return linear(work, p, (f"{name}{matrix}.",), of)

    r = emit_join(work, (product("wr", f), product("ur", x)), "add")
    new = work.unary(
        emit_join(work, (product("wg", f), product("ug", emit_gated(work, r, x, "sigmoid"))), "add"), "tanh"
    )
    # 1 - z: its bias is the stored b
    weights = {"weight": p[f"{name}wz.weight"], "bias": p[f"{name}bias"]}
    less_f, less_x = (work.affine(of, -1.0) for of in (f, x))
    stays = emit_join(work, (linear(work, weights, ("",), less_f), product("uz", less_x)), "add")
    return emit_join(
        work, (new, emit_gated(work, stays, emit_join(work, (x, work.affine(new, -1.0)), "add"), "sigmoid")), "add"
    )
