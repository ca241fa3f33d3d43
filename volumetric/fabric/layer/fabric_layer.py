"""Fabric: a layer of many small recurrent cells on a graph, which exchange messages along its edges."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.fabric.layer.cell_populations import CellPopulation, InPort, OutPort
from volumetric.fabric.layer.cell_steps import params_of, states_of
from volumetric.fabric.layer.edge_rules import RULES, Rule
from volumetric.fabric.layer.node_entries import state_entries
from volumetric.fabric.layer.node_facts import FabricDeclaration, FabricFacts, facts_of
from volumetric.fabric.layer.node_graphs import Graph
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.emit_scope import Scope
from volumetric.layers.field_checks import check_choice, check_flag, tuple_of, whole_numbers
from volumetric.layers.layer_spec import (
    ParamSpec,
    buffer,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.node_layer import NodeEntries, NodeLayer

SHARPNESS = 0.5
"""λ, the score penalty per unit of distance."""
_RAW = float(np.log(np.expm1(SHARPNESS)))


@layer("fabric")
class Fabric(NodeLayer):
    """Many small recurrent cells on a graph, on rows ``[…, T, inputs]`` → ``[…, T, outputs]``, ports concatenated.

    ::

        s_p = W_p x + b                                     input nodes, for each row
        z = P s        k, v = W_g z                         senders; g: those of a tile have one matrix
        m = Σ α v      α = softmax(q·k / √d − λ·distance)   over the edges of a receiver; q = W_q slot, or of its cell
        s, kept ← cell(W_c W_m m + W_b slot, kept)          all nodes at once, from the s before; inner_steps times
        o = W_r W_m m + b                                   output nodes, from the new s
        y = W mean(o) + b                                   a port; or of its nodes side by side, or by learned queries

    The graph is a lattice, or nodes at coordinates. s is the public output of the nodes. A row works in three steps:
    input nodes take the row, every cell reads its neighbours and steps, and output nodes read the new outputs of cells.
    So a signal crosses one edge per row, or `inner_steps` edges. An edge with a delay of D > 1 delivers its sender's
    output from the beginning of the row D − 1 rows before. Into an output node it delivers the output from the end of
    that row.

    Each node has a learned slot and a code of its place: its coordinates, their sine and cosine, and the kind of the
    node. Cells of a population have their own weights, or one set for all, or one for each tile. New weights are one
    draw with small differences between cells. The state of a sequence has the outputs and states of cells, and the
    outputs of the last rows that delays need. A reset clears the state before a row, once, for any number of inner
    steps.

    docs/fabrics.md shows how to declare, train and run a fabric.

    Attributes
    ----------
    graph : places of the nodes
    inputs, outputs : ports
    populations : the cells at the other nodes
    connectivity : the edges
    public, message : widths P of z and M of messages
    head_dim, heads, value_dim : of the attention over senders; values are as wide as keys by default
    query : query of a receiver: its learned ``"slot"``, or the previous output of its cell (``"state"``)
    kv_tile : senders in one tile share one matrix of keys and values; None: tiles of a quarter of each side of a
        lattice, or one for all without a lattice
    learn_distance : λ is learned for each head; if not it is 0.5
    inner_steps : messages for each row
    dynamic : nodes can be masked at run time. The buffer ``"living"``, ``[nodes]`` in the order of `facts`, is 0 for
        masked nodes. A masked node is not read, its output and state are zeros, and its parameters have no gradient.
        Means of outputs are over living nodes, and concatenated outputs have zeros in its place. The other nodes
        compute as if it did not exist
    without : ids of nodes of the graph that do not exist, nor do their edges, parameters and states
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    graph: Graph
    inputs: tuple[InPort, ...]
    outputs: tuple[OutPort, ...]
    populations: tuple[CellPopulation, ...]
    connectivity: tuple[Rule, ...]
    public: int = 32
    message: int = 32
    head_dim: int = 32
    heads: int = 1
    value_dim: int | None = None
    query: Literal["slot", "state"] = "slot"
    kv_tile: tuple[int, ...] | None = None
    learn_distance: bool = False
    inner_steps: int = 1
    dynamic: bool = False
    without: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields."""
        for name, kind in (("inputs", InPort), ("outputs", OutPort), ("populations", CellPopulation)):
            object.__setattr__(self, name, tuple_of(f"fabric: {name}", getattr(self, name), kind))
        object.__setattr__(self, "connectivity", tuple_of("fabric: connectivity", self.connectivity, RULES))
        for name in ("without", "kv_tile") if self.kv_tile is not None else ("without",):
            object.__setattr__(self, name, whole_numbers(f"fabric: {name}", getattr(self, name)))
        values = () if self.value_dim is None else ("value_dim",)
        expect_positive(self, "public", "message", "head_dim", "heads", "inner_steps", *values)
        check_choice("fabric: query", self.query, ("slot", "state"))
        check_flag("fabric: learn_distance", self.learn_distance)
        check_flag("fabric: dynamic", self.dynamic)
        if not isinstance(self.graph, Graph):
            raise SpecError(f"fabric: graph is no graph, got {format_value(self.graph)}", hint="Lattice((8, 6))")
        for what, of in (("an input", self.inputs), ("an output", self.outputs), ("a population", self.populations)):
            names = [one.name for one in of]
            if not of:
                raise SpecError(f"fabric: the fabric needs {what}")
            if len(set(names)) != len(names):
                raise SpecError(f"fabric: {what} has a duplicate name: {names}")
        twice = {port.name for port in self.inputs} & {port.name for port in self.outputs}
        if twice:
            raise SpecError(f"fabric: {min(twice)!r} is an input and an output", hint="rename one of them")
        widths = {p.name: p.cell.hidden for p in self.populations}
        if len(set(widths.values())) > 1:
            raise SpecError(f"fabric: cells have several hidden widths, {widths}", hint="use one hidden width")
        _ = self.facts

    @property
    def facts(self) -> FabricFacts:
        """Nodes and edges as arrays."""
        ports = self.inputs, self.outputs
        declaration = FabricDeclaration(
            self.graph, self.connectivity, *ports, self.populations, self.kv_tile, self.without
        )
        return facts_of(declaration)

    @property
    def node_ids(self) -> Array:
        """Return the ids of the nodes, in the order of `facts`."""
        return self.facts.order

    def state_entries(self) -> dict[str, NodeEntries]:
        """Return the entries of nodes for each state."""
        return state_entries(self)

    def without_masks(self) -> Fabric:
        """Return the same fabric with all nodes of its graph, and not dynamic."""
        return dataclasses.replace(self, without=(), dynamic=False)

    @property
    def hidden(self) -> int:
        """Width of the public outputs of nodes."""
        return self.populations[0].cell.hidden

    @property
    def keys(self) -> int:
        """Width of the keys of all heads."""
        return self.heads * self.head_dim

    @property
    def values(self) -> int:
        """Width of the values of all heads."""
        return self.heads * (self.value_dim or self.head_dim)

    @property
    def remembered(self) -> int:
        """Number of past rows whose public outputs are kept."""
        facts = self.facts
        return max(facts.cell_delays[-1] - 1, facts.output_delays[-1] - 2)

    def ports(self, which: Literal["inputs", "outputs"]) -> dict[str, tuple[int, int]]:
        """Return the columns of each port in a row."""
        sizes = {port.name: port.dim for port in (self.inputs if which == "inputs" else self.outputs)}
        ends = np.cumsum([*sizes.values()]).tolist()
        return {name: (end - size, end) for end, (name, size) in zip(ends, sizes.items(), strict=True)}

    def params(self) -> tuple[ParamSpec, ...]:
        facts, h = self.facts, self.hidden
        count, outs, groups = len(facts.order), facts.outputs, int(facts.groups.max(initial=0)) + 1
        first = [
            one
            for port in self.inputs
            for one in (
                _xavier(f"ports.{port.name}.weight", _size(facts.ports[port.name]) * h, port.dim, out=h),
                _zeros(f"ports.{port.name}.bias", _size(facts.ports[port.name]) * h),
            )
        ]
        asks = (_xavier("state_query.weight", self.keys, h),) if self.query == "state" else ()
        far = ParamSpec(name="distance", shape=(self.heads,), init="uniform", bounds=(_RAW, _RAW), packable=False)
        return (
            *first,
            ParamSpec(name="slot", shape=(count, 2 * h), init="normal_hundredth", packable=False),
            _xavier("query.weight", self.keys, 2 * h),
            *asks,
            _xavier("public.weight", self.public, h),
            _xavier("kv.weight", groups, self.keys + self.values, self.public, out=self.keys + self.values),
            _xavier("message.weight", self.message, self.values),
            _xavier("cell_input.weight", h, self.message),
            ParamSpec(name="slot_bias.weight", shape=(h, 2 * h), init="normal"),
            *((far,) if self.learn_distance else ()),
            *(
                _below(f"cells.{p.name}.", one)
                for p in self.populations
                for one in params_of(p.cell, int(facts.shares[p.name].max()) + 1)
            ),
            _xavier("readout.weight", outs, h, self.message, out=h),
            _zeros("readout.bias", outs, h),
            *(one for port in self.outputs for one in self._output_params(port)),
        )

    def _output_params(self, port: OutPort) -> tuple[ParamSpec, ...]:
        count = {"mean": 1, "flatten": _size(self.facts.ports[port.name]), "attend": port.slots}[port.aggregate]
        ask = _xavier(f"ports.{port.name}.query", port.slots, self.hidden)
        return (
            *((ask,) if port.aggregate == "attend" else ()),
            _xavier(f"ports.{port.name}.weight", port.dim, count * self.hidden),
            _zeros(f"ports.{port.name}.bias", port.dim),
        )

    def buffers(self) -> tuple[ParamSpec, ...]:
        return (buffer("living", (len(self.facts.order),), "ones"),) if self.dynamic else ()

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        facts = self.facts
        shapes: dict[str, Shape] = {"shown": (facts.cells, self.hidden)}
        for p in self.populations:
            count = _size(facts.populations[p.name])
            shapes |= {f"{p.name}.{name}": (count, width) for name, width in states_of(p.cell).items()}
        if self.remembered:
            shapes["past"] = (self.remembered, facts.senders_count, self.hidden)
        return tuple(StateSpec(name=name, shape=shape, kind="fixed") for name, shape in shapes.items())

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], sum(port.dim for port in self.inputs))
        return (*inputs[0][:-1], sum(port.dim for port in self.outputs))

    def places(self) -> Array:
        """Return the code of each node's place and kind, float64 ``[N, 2 H]``.

        Coordinates relative to the sides, their sine and cosine with one period per side, the population, and flags of
        input and output nodes, concatenated and repeated to 2 H numbers.
        """
        facts = self.facts
        at = facts.coords / np.asarray(self.graph.extent)
        kind = np.zeros((len(at), len(self.populations) + 2))
        for number, p in enumerate(self.populations):
            own = facts.populations[p.name]
            kind[facts.inputs + own.start : facts.inputs + own.stop, number] = 1
        kind[: facts.inputs, -2] = 1
        kind[facts.senders_count :, -1] = 1
        code = np.concatenate([at, np.sin(2 * np.pi * at), np.cos(2 * np.pi * at), kind], 1)
        return np.tile(code, -(-2 * self.hidden // code.shape[1]))[:, : 2 * self.hidden]

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.fabric.layer.emit_fabric import emit_fabric  # emit imports this module

        return emit_fabric(scope, self, x)


def _size(of: slice) -> int:
    return of.stop - of.start


def _xavier(name: str, *shape: int, out: int | None = None) -> ParamSpec:
    """Uniform in ±√(6 / (in + out)) (Glorot and Bengio 2010)."""
    bound = float(np.sqrt(6 / (shape[-1] + (shape[-2] if out is None else out))))
    return ParamSpec(name=name, shape=shape, init="uniform", bounds=(-bound, bound))


def _zeros(name: str, *shape: int) -> ParamSpec:
    return ParamSpec(name=name, shape=shape, init="zeros", packable=False)


def _below(prefix: str, spec: ParamSpec) -> ParamSpec:
    return dataclasses.replace(spec, name=prefix + spec.name)
