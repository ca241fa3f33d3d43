"""What a layer writes its graph with: where its parameters and states are, and nodes that many layers write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from volumetric.base._typing import Shape
from volumetric.formula.functions import OWN
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.state import no_resets

if TYPE_CHECKING:
    from volumetric.layers.base import LayerSpec

GetParam: TypeAlias = Callable[[str, Shape], int]
"""Path of a parameter below a layer, and its shape → tensor."""
GetStack: TypeAlias = "Callable[[Sequence[str]], int | None]"
"""Keys of parameters of one shape → the tensor in which they lie one behind the other, if they do."""


def all_apart(keys: Sequence[str]) -> int | None:
    """Return None: every parameter is a tensor of its own."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTraining:
    """What a graph of training has beside that of inference.

    Attributes
    ----------
    buffers : key → newest value of each buffer that layers may change; they put theirs here, and who emits the graph
        decides when it is written
    noise : key of the pass, int32 [2], which random choices depend on; None where no layer makes any
    penalties : what layers add to the sum of the loss's terms, each [1]
    first : sequences of the batch that go before those of this graph, so that choices are those of the whole batch
    """

    buffers: dict[str, int]
    noise: int | None = None
    penalties: list[int] = field(default_factory=list)
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a layer is written.

    Attributes
    ----------
    work : the graph under construction
    param : gives the layer's parameters
    path : the layer, ``"1.0.0.2/0"``
    sequences : how many sequences of equal length lie one behind the other on the first axis. Each is treated as a call
        of its own: layers that look at other rows, or at their place among them, start anew at each
    resumes : the rows of a call go on from the states of their sequence; where not, a sequence starts with its call
    training : None at inference
    resets : float32 ``[sequences, T]``, 1 where a new sequence begins with a row; None: nowhere
    states : key → value of what layers keep, which they replace here; None: it lies in buffers of the device
    key : gives the key of one of the layer's parameters or buffers
    stack : gives parameters that lie as one
    """

    work: GraphBuilder
    param: GetParam
    path: str
    sequences: int = 1
    resumes: bool = False
    training: GraphTraining | None = None
    resets: int | None = None
    states: dict[str, int] | None = None
    key: Callable[[str], str] = str
    stack: GetStack = all_apart

    def params(self, spec: LayerSpec, *, but: Collection[str] = ()) -> dict[str, int]:
        """Return the tensors of the parameters of a layer by name, `but` those of some names."""
        return {p.name: self.param(p.name, p.shape) for p in spec.params() if p.name not in but}

    def stacked(self, stacks: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
        """Return those of some stacks of the layer's parameters that lie as one, by their names."""
        tensors = {names: self.stack([self.key(name) for name in names]) for names in stacks}
        return {names: i for names, i in tensors.items() if i is not None}

    def buffers(self, spec: LayerSpec) -> dict[str, int]:
        """Return the tensors of the buffers of a layer by name, as they are after the nodes so far."""
        newest = {} if self.training is None else self.training.buffers
        tensors: dict[str, int] = {}
        for b in spec.buffers():
            key = self.key(b.name)
            tensors[b.name] = newest[key] if key in newest else self.param(b.name, b.shape)
        return tensors

    def may_change(self, spec: LayerSpec) -> bool:
        """Whether this graph trains, and with it the buffers of a layer, if it has any."""
        return self.training is not None and all(self.key(b.name) in self.training.buffers for b in spec.buffers())

    def change(self, name: str, value: int) -> None:
        """Give a buffer, which `may_change` allows, its new value."""
        if self.training is not None:
            self.training.buffers[self.key(name)] = value

    def keeps_state(self, x: int) -> bool:
        """Whether a layer that reads `x` goes on from states: with more axes every row is a sample of its own."""
        return self.resumes and len(self.work.shape(x)) <= 2

    def state(self, name: str, shape: Shape) -> int:
        """Return the tensor of a state of the layer as it is after the nodes so far."""
        key = f"{self.path}/{name}"
        return self.work.stored(key, shape, role="state") if self.states is None else self.states[key]

    def keep(self, name: str, value: int) -> None:
        """Give a state of the layer its new value."""
        key = f"{self.path}/{name}"
        if self.states is None:
            self.work.assign(key, value)
        else:
            self.states[key] = value

    def child(self, name: str) -> Scope:
        """Return the scope of a layer inside of this one."""
        return replace(
            self,
            path=f"{self.path}/{name}",
            param=lambda path, shape: self.param(f"{name}/{path}", shape),
            key=lambda path: self.key(f"{name}/{path}"),
        )

    def emit(self, spec: LayerSpec, *inputs: int) -> int:
        """Emit a layer and return its output. Raises `UnsupportedError` if its kind writes none."""
        if self.resets is not None and spec.contextual and spec.children_field is None and not spec.takes_resets:
            raise no_resets(f"{spec.kind} at {self.path}")
        with self.work.at(self.path):
            return spec.emit(self, *inputs)

    def kept_before(self, x: int, *, reverse: bool = False) -> int | None:
        """Return which steps find the states of the one before, ``[sequences, T]``, for a layer that reads `x`.

        Computed from the last to the first, a step finds those of the row behind it unless that resets.
        """
        work, resets = self.work, self.resets
        if resets is None or len(work.shape(x)) > 2:
            return None
        if reverse:
            length = work.shape(resets)[1]
            resets = work.pad(work.part(work.flip(resets, 1), 1, 0, max(length - 1, 0)), (0, min(length, 1)), (0, 0))
        return work.affine(resets, -1.0, 1.0)

    def sequenced(self, x: int) -> int:
        """View ``[rows, width]`` or ``[…, T, width]`` as ``[sequences, T, width]``."""
        *lead, width = self.work.shape(x)
        if len(lead) > 1:
            return self.work.reshape(x, (prod(lead[:-1]), lead[-1], width))
        if not lead[0]:
            return self.work.reshape(x, (0, 1, width))  # no rows: no sequences either, rather than empty ones
        return self.work.reshape(x, (self.sequences, lead[0] // max(self.sequences, 1), width))


def start(scope: Scope, x: int, name: str, shape: Shape) -> int:
    """Return a state as the rows of `x` find it, ``[sequences, *shape]``: zeros where none is kept."""
    whole = (scope.work.shape(scope.sequenced(x))[0], *shape)
    return scope.state(name, whole) if scope.keeps_state(x) else scope.work.zeros(whole)


def flat(work: GraphBuilder, x: int) -> int:
    """View `x` as rows: all axes but the last are one."""
    *lead, width = work.shape(x)
    return work.reshape(x, (prod(lead), width))


def columns(work: GraphBuilder, x: int, start: int, width: int) -> int:
    """Emit `width` elements of the last axis, from `start` on."""
    return work.part(x, len(work.shape(x)) - 1, start, start + width)


def gated(work: GraphBuilder, gate: int, x: int, activation: str) -> int:
    """Emit ``act(gate) · x``, element by element."""
    return work.binary("mul", work.unary(gate, activation), x)


def linear(
    work: GraphBuilder,
    p: Mapping[str, int],
    names: Sequence[str],
    x: int,
    *,
    activation: str = "linear",
    combine: Literal["concat", "gated"] = "concat",
    limit: float | None = None,
    up_offset: float = 0.0,
) -> int:
    """``act(x Wᵀ + b)`` on the last axis, for the parameters ``{name}weight`` and, where there, ``{name}bias``.

    Several products come side by side; of two that are gated the result is ``act(x W₀ᵀ + b₀) · (x W₁ᵀ + b₁)``, whose
    factors `layers.SwiGLU` bounds where there is a `limit`.
    """
    weights = {f"weight.{i}": p[f"{name}weight"] for i, name in enumerate(names)}
    biases = {f"bias.{i}": p[f"{name}bias"] for i, name in enumerate(names) if f"{name}bias" in p}
    if activation not in OWN:  # products end with activations of the engine alone
        ends = [linear(work, p, (name,), x) for name in names]
        if combine == "gated":
            return work.fused("gated", ends, activation=activation, limit=limit, up_offset=up_offset)[0]
        return work.unary(work.concat(ends, len(work.shape(x)) - 1), activation)
    by_role = {"x": x, **weights, **biases}
    parts = tuple(work.shape(weight)[0] for weight in weights.values())
    attrs = {**LINEAR, "combine": combine, "activation": activation, "parts": parts, "roles": tuple(by_role)}
    attrs |= {"limit": limit, "up_offset": up_offset}
    return work.fused("linear", tuple(by_role.values()), **attrs)[0]


def spread_by_channel(work: GraphBuilder, vector: int, axes: int) -> int:
    """View ``[C]`` so that it broadcasts over ``[N, C, …]``."""
    return work.reshape(vector, (1, *work.shape(vector), *(1,) * (axes - 2)))


def joined(work: GraphBuilder, values: Sequence[int], combine: str) -> int:
    """Concatenate on the last axis, add or average."""
    if combine == "concat":
        return work.concat(values, len(work.shape(values[0])) - 1)
    scale = 1 / len(values) if combine == "avg" else 1.0
    return work.affine(work.add(*values), scale)
