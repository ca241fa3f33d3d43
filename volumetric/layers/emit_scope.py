"""The context in which a layer emits its graph: its parameters and states, and nodes that many layers emit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from operator import index
from typing import TYPE_CHECKING, Literal, TypeAlias

from volumetric.base._typing import Shape
from volumetric.formula.unary_functions import OWN
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.state_spec import resets_unsupported
from volumetric.layers.traced_layer import emit_traced

if TYPE_CHECKING:
    from volumetric.layers.layer_spec import LayerSpec

GetParam: TypeAlias = Callable[[str, Shape], int]
"""Path of a parameter below a layer, and its shape → tensor."""
GetStack: TypeAlias = "Callable[[Sequence[str]], int | None]"
"""Keys of parameters of one shape → the tensor in which they are stacked, or None."""


def no_stack(keys: Sequence[str]) -> int | None:
    """Return None: every parameter is a separate tensor."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTraining:
    """Additional data of a training graph.

    Attributes
    ----------
    buffers : key → newest value of each buffer that layers may change; layers set it, and the caller that emits the
        graph decides when it is written
    noise : random key of the pass, int32 [2]; None if no layer draws
    penalties : terms that layers add to the total of the loss, each [1]
    first : sequences of the batch before those of this graph, so that draws are those of the whole batch
    """

    buffers: dict[str, int]
    noise: int | None = None
    penalties: list[int] = field(default_factory=list)
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The context in which a layer is emitted.

    Attributes
    ----------
    work : the graph under construction
    param : returns a parameter of the layer
    path : path of the layer, ``"1.0.0.2/0"``
    sequences : number of sequences of equal length, concatenated on the first axis. Each is treated as a separate call:
        layers that read other rows, or positions, restart at each
    resumes : the rows of a call continue from the states of their sequence; otherwise a sequence starts with its call
    training : None at inference
    resets : float32 ``[sequences, T]``, 1 for a row that starts a new sequence; None: no resets
    states : key → value of a state, which layers replace here; None: states are in buffers of the device
    key : returns the key of a parameter or buffer of the layer
    stack : returns the tensor of stacked parameters
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
    stack: GetStack = no_stack

    def params(self, spec: LayerSpec, *, but: Collection[str] = ()) -> dict[str, int]:
        """Return the tensors of the parameters of a layer by name, except the names in `but`."""
        return {p.name: self._of_layer(self.param(p.name, p.shape)) for p in spec.params() if p.name not in but}

    def stacked_params(self, stacks: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
        """Return those of `stacks` (names of parameters of the layer) that are stored as one tensor."""
        tensors = {names: self.stack([self.key(name) for name in names]) for names in stacks}
        return {names: i for names, i in tensors.items() if i is not None}

    def buffers(self, spec: LayerSpec) -> dict[str, int]:
        """Return the tensors of the buffers of a layer by name, after the nodes so far."""
        newest = {} if self.training is None else self.training.buffers
        tensors: dict[str, int] = {}
        for b in spec.buffers():
            key = self.key(b.name)
            tensors[b.name] = self._of_layer(newest[key] if key in newest else self.param(b.name, b.shape))
        return tensors

    def may_change_buffers(self, spec: LayerSpec) -> bool:
        """Return whether this graph trains and updates the buffers of a layer."""
        return self.training is not None and all(self.key(b.name) in self.training.buffers for b in spec.buffers())

    def change_buffer(self, name: str, value: int) -> None:
        """Set the new value of a buffer; call it only if `may_change`."""
        if self.training is not None:
            self.training.buffers[self.key(name)] = index(value)

    def keeps_state(self, x: int) -> bool:
        """Return whether a layer that reads `x` continues from states; with more axes every row is a sample."""
        return self.resumes and len(self.work.shape(x)) <= 2

    def state(self, name: str, shape: Shape) -> int:
        """Return the tensor of a state of the layer after the nodes so far."""
        key = f"{self.path}/{name}"
        if self.states is None:
            return self.work.stored_tensor(key, shape, role="state")
        return self.work.traced(self.states[key]) if self.work.traces else self.states[key]

    def keep_state(self, name: str, value: int) -> None:
        """Set the new value of a state of the layer."""
        key = f"{self.path}/{name}"
        if self.states is None:
            self.work.assign(key, value)
        else:
            self.states[key] = index(value)

    def child(self, name: str) -> Scope:
        """Return the scope of a nested layer."""
        return replace(
            self,
            path=f"{self.path}/{name}",
            param=lambda path, shape: self.param(f"{name}/{path}", shape),
            key=lambda path: self.key(f"{name}/{path}"),
        )

    def emit(self, spec: LayerSpec, *inputs: int) -> int:
        """Emit a layer and return its output; a layer of a user computes with `TracedTensor`.

        Raises
        ------
        UnsupportedError : the layer needs resets, which it does not support
        SpecError : `emit` of a user's layer fails, or does not return a tensor
        """
        if self.resets is not None and spec.contextual and spec.children_field is None and not spec.takes_resets:
            raise resets_unsupported(f"{spec.kind} at {self.path}")
        work = self.work
        with work.at(self.path):
            if spec.traced:
                return emit_traced(self, spec, inputs)
            if not work.traces:
                return spec.emit(self, *inputs)
            with work.tracing(""):
                y = spec.emit(self, *map(index, inputs))
            return work.traced(y)

    def _of_layer(self, i: int) -> int:
        """Return a parameter or buffer as what the layer computes with."""
        return self.work.traced(i, sampled=False) if self.work.traces else i

    def keep_mask(self, x: int, *, reverse: bool = False) -> int | None:
        """Return which steps continue from the step before, ``[sequences, T]``, for a layer that reads `x`.

        With `reverse`, the steps run from the last to the first: a step continues from the next row unless that resets.
        """
        work, resets = self.work, self.resets
        if resets is None or len(work.shape(x)) > 2:
            return None
        if reverse:
            length = work.shape(resets)[1]
            resets = work.pad(work.part(work.flip(resets, 1), 1, 0, max(length - 1, 0)), (0, min(length, 1)), (0, 0))
        return work.affine(resets, -1.0, 1.0)

    def as_sequences(self, x: int) -> int:
        """View ``[rows, width]`` or ``[…, T, width]`` as ``[sequences, T, width]``."""
        *lead, width = self.work.shape(x)
        if len(lead) > 1:
            return self.work.reshape(x, (prod(lead[:-1]), lead[-1], width))
        if not lead[0]:
            return self.work.reshape(x, (0, 1, width))  # no rows: no sequences, rather than empty ones
        return self.work.reshape(x, (self.sequences, lead[0] // max(self.sequences, 1), width))


def start_state(scope: Scope, x: int, name: str, shape: Shape) -> int:
    """Return the initial state for the rows of `x`, ``[sequences, *shape]``: zeros if there is no stored state."""
    whole = (scope.work.shape(scope.as_sequences(x))[0], *shape)
    return scope.state(name, whole) if scope.keeps_state(x) else scope.work.zeros(whole)


def as_rows(work: GraphBuilder, x: int) -> int:
    """View `x` as rows: merges all axes but the last."""
    *lead, width = work.shape(x)
    return work.reshape(x, (prod(lead), width))


def columns(work: GraphBuilder, x: int, start: int, width: int) -> int:
    """Emit `width` elements of the last axis from `start_state`."""
    return work.part(x, len(work.shape(x)) - 1, start, start + width)


def emit_gated(work: GraphBuilder, gate: int, x: int, activation: str) -> int:
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
    """Emit ``act(x Wᵀ + b)`` on the last axis, for the parameters ``{name}weight`` and, if present, ``{name}bias``.

    Several products are concatenated; ``"gated"`` combines two to ``act(x W₀ᵀ + b₀) · (x W₁ᵀ + b₁)``, with factors
    bounded by `limit` as in `layers.SwiGLU`.
    """
    weights = {f"weight.{i}": p[f"{name}weight"] for i, name in enumerate(names)}
    biases = {f"bias.{i}": p[f"{name}bias"] for i, name in enumerate(names) if f"{name}bias" in p}
    if activation not in OWN:  # only built-in activations can be fused into products
        ends = [linear(work, p, (name,), x) for name in names]
        if combine == "gated":
            return work.emit_fused("gated", ends, activation=activation, limit=limit, up_offset=up_offset)[0]
        return work.unary(work.concat(ends, len(work.shape(x)) - 1), activation)
    by_role = {"x": x, **weights, **biases}
    parts = tuple(work.shape(weight)[0] for weight in weights.values())
    attrs = {**LINEAR, "combine": combine, "activation": activation, "parts": parts, "roles": tuple(by_role)}
    attrs |= {"limit": limit, "up_offset": up_offset}
    return work.emit_fused("linear", tuple(by_role.values()), **attrs)[0]


def spread_by_channel(work: GraphBuilder, vector: int, axes: int) -> int:
    """View ``[C]`` so that it broadcasts over ``[N, C, …]``."""
    return work.reshape(vector, (1, *work.shape(vector), *(1,) * (axes - 2)))


def emit_join(work: GraphBuilder, values: Sequence[int], combine: str) -> int:
    """Concatenate on the last axis, add or average."""
    if combine == "concat":
        return work.concat(values, len(work.shape(values[0])) - 1)
    scale = 1 / len(values) if combine == "avg" else 1.0
    return work.affine(work.add(*values), scale)
