"""Lowering: turns a network into a plan with one step for each layer; containers become steps and joins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from volumetric.base._typing import ROWS, Shape
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.graph.state_spec import is_sequence
from volumetric.layers import LayerSpec, Parallel, Residual, Sequential, StateSpec
from volumetric.network import Network
from volumetric.network.grid import Coord
from volumetric.network.wiring import Source, carries_ids, check_order
from volumetric.run.plan import DELAYS, Plan, Step, Value

_JOINS = {"add": ("add", 1.0), "avg": ("add", None), "concat": ("concat", None)}


def lower(network: Network, context: int | None = None) -> Plan:
    """Return the layer-level plan of `network`: its steps in reading order.

    Every step's ``attrs["spec"]`` is the layer spec, except for the joins ``add`` and ``concat`` and for links with a
    delay, see `Plan`. A Parallel with another join is one step that includes its branches.

    Parameters
    ----------
    context : maximum number of rows of a sequence; None: layers that depend on it use the length of training

    Raises
    ------
    SpecError : links without a delay close a loop; or a network with a loop, which runs a few rows at a time, has a
        layer that reads later rows or other samples of the batch
    """
    check_order(network.wires, network.layers)
    return _Lowering(network, context).run()


class _Lowering:
    """Collects values and steps during the walk over the layers."""

    def __init__(self, network: Network, context: int | None) -> None:
        self.network = network
        self.context = context
        self.values: list[Value] = []
        self.steps: list[Step] = []
        self.states: dict[str, StateSpec] = {}
        self.params: dict[str, Shape] = {}
        self.buffers: set[str] = set()
        self.read: dict[Source, int] = {}
        self.recalled: list[tuple[Source, Step]] = []

    def run(self) -> Plan:
        """Return the plan: the steps of all layers in reading order, with their values, parameters and states."""
        network = self.network
        read = self.read
        inputs: dict[str, int] = {}
        for name, port in network.ports.items():
            inputs[name] = self._value(name, (ROWS, *port.shape), port.dtype)
            self.values[-1] = dataclasses.replace(self.values[-1], default=port.default)
        read |= {Source(port=name): value for name, value in inputs.items()}
        for w in network.wires:
            args = [self._earlier(s.coord, s.delay, w.coord) if s.coord and s.delay else read[s] for s in w.inputs]
            where = str(w.coord)
            x = args[0] if len(args) == 1 else self._join(where, args, "add")
            skip = () if w.skip is None else (read[w.skip],)
            output = x if w.identity else self._layer(network.layers[w.coord], where, where, (x, *skip))
            read[Source(w.coord, "input")] = x
            read[Source(w.coord)] = output
        for source, recall in self.recalled:
            retained = (read[Source(source.coord)],)
            self.steps.append(dataclasses.replace(recall, op="retain", inputs=retained, outputs=()))
        return Plan(
            values=tuple(self.values),
            steps=tuple(mark_tail(self.steps)),
            inputs=MappingProxyType(inputs),
            outputs=MappingProxyType({name: read[Source(coord)] for name, coord in network.taps.items()}),
            params=MappingProxyType(self.params),
            states=MappingProxyType(self.states),
            buffers=frozenset(self.buffers),
            max_rows=self._piece(),
        )

    def _earlier(self, coord: Coord, rows: int, target: Coord) -> int:
        """Return the value of a layer's output `rows` rows earlier; it is emitted once for all readers."""
        source = Source(coord, delay=rows)
        if source in self.read:
            return self.read[source]
        value = self.read.get(Source(coord))
        where, name, shape = str(coord), f"delay{rows}", self.network.shapes[coord]
        network = self.network
        ids = carries_ids(Source(coord), {w.coord: w for w in network.wires}, network.ports)
        dtype = "int32" if ids else "float32"
        key = f"{where}/{name}"
        self.states[key] = StateSpec(name=name, shape=(rows, *shape[1:]), kind="fixed", dtype=dtype)
        out = self._value(f"{where}.{name}", shape, dtype)
        attrs = {"rows": rows, "link": f"{where} → {target}"}
        inputs = () if value is None else (value,)
        self._emit("recall" if value is None else "delay", where, inputs, out, {}, attrs, {"past": key})
        if value is None:
            self.recalled.append((source, self.steps[-1]))
        self.read[source] = out
        return out

    def _piece(self) -> int | None:
        """Return the most rows that may run at a time."""
        for step in self.steps if self.recalled else ():
            if _looks_ahead(step, [self.values[i].shape for i in step.inputs]):
                _, recall = self.recalled[0]
                raise SpecError(
                    f"{step.op} at {step.where} reads later rows or other samples, which the loop of the link "
                    f"{recall.attrs['link']} has not computed yet",
                    hint="a network with a loop runs row by row: use causal layers, and norms over single rows",
                )
        return min((source.delay for source, _ in self.recalled), default=None)

    def _layer(self, spec: LayerSpec, where: str, path: str, inputs: tuple[int, ...]) -> int:
        """Emit the steps of one layer; `path` is the prefix of its parameters."""
        if isinstance(spec, Sequential):
            values = [inputs[0]]
            for i, child in enumerate(spec.layers):
                args = tuple(values[j] for j in spec.sources(i))
                values.append(self._layer(child, f"{where}/{i}", f"{path}/{i}", args))
            return values[-1]
        if isinstance(spec, Parallel) and spec.combine in _JOINS:
            branches = [self._layer(b, f"{where}/{i}", f"{path}/{i}", inputs) for i, b in enumerate(spec.branches)]
            return self._join(where, branches, spec.combine)
        spec = spec if self.context is None else spec.for_context(self.context)
        shapes = [self.values[i].shape for i in inputs]
        out = self._value(where, spec.output_shape(*shapes))
        keys = {p.name: self.network.resolve(f"{path}/{p.name}") for p in spec.tensors()}
        self.params |= {keys[p.name]: p.shape for p in spec.tensors()}
        self.buffers |= {keys[p.name] for p in spec.buffers()}
        op = "add" if isinstance(spec, Residual) else spec.kind
        attrs: dict[str, Any] = {"scale": 1.0} if isinstance(spec, Residual) else {"spec": spec}
        states = {state.name: f"{where}/{state.name}" for state in spec.states(*shapes)}
        self.states |= {states[state.name]: state for state in spec.states(*shapes)}
        self._emit(op, where, inputs, out, keys, attrs, states)
        return out

    def _join(self, where: str, inputs: list[int], combine: str) -> int:
        op, scale = _JOINS[combine]
        shape = self.values[inputs[0]].shape
        if op == "concat":
            shape = (*shape[:-1], sum(self.values[i].shape[-1] for i in inputs))
        attrs = {} if op == "concat" else {"scale": 1 / len(inputs) if scale is None else scale}
        out = self._value(where, shape)
        self._emit(op, where, tuple(inputs), out, {}, attrs, {})
        return out

    def _emit(
        self,
        op: str,
        where: str,
        inputs: tuple[int, ...],
        out: int,
        params: dict[str, str],
        attrs: dict[str, Any],
        states: dict[str, str],
    ) -> None:
        self.steps.append(
            Step(
                op=op,
                where=where,
                inputs=inputs,
                outputs=(out,),
                params=MappingProxyType(params),
                attrs=MappingProxyType(attrs),
                states=MappingProxyType(states),
            )
        )

    def _value(self, name: str, shape: Shape, dtype: str = "float32") -> int:
        if shape[0] != ROWS:
            raise UnsupportedError(f"{name}: a value of shape {shape} has no row axis")
        self.values.append(Value(name=name, shape=shape, dtype="int32" if dtype == "int32" else "float32"))
        return len(self.values) - 1


def mixes_rows(step: Step) -> bool:
    """Return whether a row of the output depends on other rows of the call, or on its index among them."""
    spec: LayerSpec | None = step.attrs.get("spec")
    return step.op == "attend" or step.op in DELAYS or (spec is not None and spec.contextual)


def mixing_step(plan: Plan) -> Step | None:
    """Return the first step for which the rows of a call are one sequence; None if rows are independent samples.

    Rows with several axes are samples for layers, but time steps for a link with a delay.
    """
    for step in plan.steps:
        if mixes_rows(step) and (step.op in DELAYS or len(plan.values[step.inputs[0]].shape) <= 2):
            return step
    return None


def sees_batch(step: Step) -> bool:
    """Return whether a row of the output depends on the other samples of a call, also at inference."""
    spec: LayerSpec | None = step.attrs.get("spec")
    return spec is not None and spec.batch_statistics == "always"


def looks_ahead(plan: Plan, step: Step) -> bool:
    """Return whether a row of the output depends on later rows of its call: a sequence must then be one call."""
    return _looks_ahead(step, [plan.values[i].shape for i in step.inputs])


def _looks_ahead(step: Step, inputs: Sequence[Shape]) -> bool:
    spec: LayerSpec | None = step.attrs.get("spec")
    return sees_batch(step) or (spec is not None and spec.two_way and is_sequence(*inputs))


def is_endless(plan: Plan) -> bool:
    """Return whether no state of a stream grows, and no layer limits the number of rows."""
    specs: list[LayerSpec] = [step.attrs["spec"] for step in plan.steps if "spec" in step.attrs]
    goes_on = all(not s.ends_with_context and (s.takes_resets or not s.contextual) for s in specs)
    return goes_on and all(state.kind == "fixed" for state in plan.states.values())


def mark_tail(steps: list[Step]) -> list[Step]:
    """Mark the steps after the last one that mixes rows: they may run on the last row only."""
    last = max((i for i, step in enumerate(steps) if mixes_rows(step) or sees_batch(step)), default=-1)
    return [dataclasses.replace(step, tail=i > last) for i, step in enumerate(steps)]
