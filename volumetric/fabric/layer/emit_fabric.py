"""Graph of a fabric: products over all nodes of a kind at once, and one step as the body of a scan.

Nodes are the first axis, streams the second. Values that are constant over rows are emitted before the scan: products
of weights with weights, queries, and values of each node. The outputs, keys and values of input nodes are also emitted
before it, for all rows at once; the inputs of output nodes are emitted after it. Keys and values of cells carry over
from step to step: they are computed once, for their readers in the next step and for outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from volumetric.fabric.layer.cell_populations import OutPort
from volumetric.fabric.layer.cell_steps import (
    MessageMap,
    fixed_weights,
    split_states,
    stack_states,
    states_of,
    step_cells,
    stored_states,
)
from volumetric.fabric.layer.fabric_layer import SHARPNESS, Fabric
from volumetric.fabric.layer.messages import (
    MatrixGroups,
    ReadingPlan,
    attend,
    biases,
    by_group,
    by_node,
    first_of,
    living_of,
    mask_senders,
    merge_matrices,
    parts_of,
    reading_of,
    shown_by,
)
from volumetric.fabric.layer.node_facts import FabricFacts
from volumetric.graph.build import GraphBuilder
from volumetric.layers.emit_scope import Scope, start_state
from volumetric.layers.repeat_body import repeat


def emit_fabric(scope: Scope, spec: Fabric, x: int) -> int:
    """Emit the steps of a fabric."""
    work = scope.work
    *lead, _ = work.shape(x)
    rows = scope.as_sequences(x)
    batch, length, columns = work.shape(rows)
    if not length:
        return work.zeros((*lead, spec.output_shape(work.shape(x))[-1]))
    plan = _plan(spec)
    p = scope.params(spec)
    living = living_of(scope, spec)
    fixed = _emit_fixed(work, spec, plan, p, living)
    in_order = work.reshape(work.permute(rows, (1, 0, 2)), (length * batch, columns))
    shown_inputs = shown_by(work, living, shown_by_inputs(work, spec, p, in_order), 0)
    xs = [_row_by_row(work, _emit_keys_values(work, fixed, plan.inputs, "in", shown_inputs), length)]
    xs += [_row_by_row(work, shown_inputs, length)] if spec.remembered else []
    keep = scope.keep_mask(x)
    xs += [] if keep is None else [work.reshape(work.permute(keep, (1, 0)), (length, 1, batch, 1))]
    begun = _begin_states(scope, spec, plan, fixed, x, living)

    def body(
        inner: GraphBuilder, xs: list[int], constants: list[int], states: list[int]
    ) -> tuple[list[int], list[int]]:
        row = _FabricRow(
            inner, spec, plan, dict(zip(fixed, constants, strict=True)), dict(zip(begun, states, strict=True))
        )
        read = row.run(xs, resets=keep is not None)
        return [read], [row.state[name] for name in begun]

    written = scope.training is not None or length == 1
    [read], ends = repeat(work, body, xs, [*fixed.values()], [*begun.values()], written=written)
    if scope.keeps_state(x):
        _store_states(scope, spec, dict(zip(begun, ends, strict=True)), living)
    _, senders, _, wide = work.shape(read)
    kv = work.reshape(work.permute(read, (1, 0, 2, 3)), (senders, length * batch, wide))
    m = attend(work, fixed["ask outputs"], kv, plan.to_outputs, _tensors_below(fixed, "outputs "), spec.heads)
    o = by_node(work, m, merge_matrices(work, p["message.weight"], p["readout.weight"]), p["readout.bias"])
    y = emit_outputs(work, spec, p, shown_by(work, living, o, plan.facts.senders_count), living)
    apart = work.reshape(y, (length, batch, work.shape(y)[1]))
    return work.reshape(work.permute(apart, (1, 0, 2)), (*lead, work.shape(y)[1]))


def _row_by_row(work: GraphBuilder, x: int, length: int) -> int:
    """Reshape ``[nodes, T · B, …]`` to ``[T, nodes, B, …]``."""
    nodes, rows, width = work.shape(x)
    return work.permute(work.reshape(x, (nodes, length, rows // length, width)), (1, 0, 2, 3))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _FabricPlan:
    """Layout of the computation, derived from a fabric's facts.

    Attributes
    ----------
    to_cells, to_outputs : how they read; senders are repeated for each delay
    inputs, cells : grouped products that compute their keys and values
    read : range of cells that outputs read: the first, and one past the last
    """

    facts: FabricFacts
    to_cells: ReadingPlan
    to_outputs: ReadingPlan
    inputs: tuple[MatrixGroups, ...]
    cells: tuple[MatrixGroups, ...]
    read: tuple[int, int]


def _plan(spec: Fabric) -> _FabricPlan:
    facts = spec.facts
    edge, count, cell_delays, out_delays = facts.to_cells, facts.senders_count, facts.cell_delays, facts.output_delays
    late, senders = facts.delay, facts.senders.astype(np.int64)
    own = np.arange(facts.inputs, count) if cell_delays[0] == 1 else np.full(facts.cells, -1)
    from_ = np.searchsorted(cell_delays, late[:edge]) * count + senders[:edge]
    to_cells = reading_of(facts.starts[: facts.cells + 1], from_, facts.distance[:edge], own, len(cell_delays) * count)
    cells_read = senders[edge:] - facts.inputs
    low, high = (int(cells_read.min()), int(cells_read.max()) + 1) if cells_read.size else (0, 1)
    from_ = np.searchsorted(out_delays, late[edge:]) * (high - low) + cells_read - low
    nobody = np.full(facts.outputs, -1)
    starts = facts.starts[facts.cells :] - edge
    to_outputs = reading_of(starts, from_, facts.distance[edge:], nobody, len(out_delays) * (high - low))
    return _FabricPlan(
        facts=facts,
        to_cells=to_cells,
        to_outputs=to_outputs,
        inputs=parts_of(facts.groups[: facts.inputs]),
        cells=parts_of(facts.groups[facts.inputs :]),
        read=(low, high),
    )


def _emit_fixed(
    work: GraphBuilder, spec: Fabric, plan: _FabricPlan, p: dict[str, int], living: int | None
) -> dict[str, int]:
    """Emit the values that are constant over rows."""
    facts, h = plan.facts, spec.hidden
    count = len(facts.order)
    slots = work.binary("add", work.constant(spec.places(), "places"), p["slot"])

    def of_slots(first: int, last: int, name: str) -> int:
        own = work.reshape(work.part(slots, 0, first, last), (1, last - first, 2 * h))
        weight = p[name]
        wide = work.shape(weight)[0]
        product = work.gemm(own, work.reshape(weight, (1, wide, 2 * h)), trans_b=True)
        return work.reshape(product, (last - first, wide))

    ask = of_slots(facts.inputs, count, "query.weight")
    ask = work.reshape(ask, (count - facts.inputs, 1, spec.keys))
    fixed = {"ask outputs": work.part(ask, 0, facts.cells, facts.cells + facts.outputs)}
    if spec.query == "state":
        fixed["ask"] = work.permute(work.reshape(p["state_query.weight"], (1, spec.keys, h)), (0, 2, 1))
    else:
        fixed["ask"] = work.part(ask, 0, 0, facts.cells)
    tell = merge_matrices(work, p["public.weight"], p["kv.weight"])
    for name, parts in (("in", plan.inputs), ("cell", plan.cells)):
        fixed |= {f"tell {name} {n}": _sets(work, tell, part) for n, part in enumerate(parts)}
    cost = None
    if spec.learn_distance:
        cost = work.reshape(work.unary(p["distance"], "softplus"), (1, spec.heads))
    low, high = (facts.inputs + cell for cell in plan.read)
    readers = ("cells", plan.to_cells, 0, facts.senders_count), ("outputs", plan.to_outputs, low, high)
    for name, reading, first, last in readers:
        bias = biases(work, reading, cost, SHARPNESS)
        if living is not None:
            bias = mask_senders(work, reading, bias, work.part(living, 0, first, last))
        fixed |= {f"{name} {k}": v for k, v in bias.items()}
    if living is not None:
        fixed["living"] = living
    wide, narrow = work.shape(p["message.weight"])
    inner = work.gemm(
        work.reshape(p["cell_input.weight"], (1, h, wide)), work.reshape(p["message.weight"], (1, wide, narrow))
    )
    offset = of_slots(facts.inputs, facts.senders_count, "slot_bias.weight")
    for of in spec.populations:
        own, start = facts.populations[of.name], f"cells.{of.name}."
        arriving = MessageMap(work.reshape(inner, (h, narrow)), work.part(offset, 0, own.start, own.stop))
        weights = {name.removeprefix(start): tensor for name, tensor in p.items() if name.startswith(start)}
        per_node = fixed_weights(work, of, weights, facts.shares[of.name], arriving)
        fixed |= {f"{of.name}.{name}": tensor for name, tensor in per_node.items()}
    return fixed


def _sets(work: GraphBuilder, tell: int, part: MatrixGroups) -> int:
    """Emit the matrices of a part's groups, ``[groups, H, keys and values]``."""
    count, h, wide = work.shape(tell)
    if part.ids == tuple(range(count)):
        return tell
    table = work.reshape(tell, (count, h * wide))
    matrices = work.gather_rows(table, work.constant(np.array(part.ids, np.int32), "groups"))
    return work.reshape(matrices, (len(part.ids), h, wide))


def _emit_keys_values(
    work: GraphBuilder, fixed: dict[str, int], parts: tuple[MatrixGroups, ...], name: str, shown: int
) -> int:
    """Emit keys and values of nodes."""
    return by_group(work, shown, parts, [fixed[f"tell {name} {n}"] for n in range(len(parts))])


def _tensors_below(fixed: dict[str, int], start: str) -> dict[str, int]:
    return {name.removeprefix(start): tensor for name, tensor in fixed.items() if name.startswith(start)}


def _begin_states(
    scope: Scope, spec: Fabric, plan: _FabricPlan, fixed: dict[str, int], x: int, living: int | None
) -> dict[str, int]:
    """Emit the states before the first row, with streams as the second to last axis, and their keys and values."""
    work, facts, states = scope.work, plan.facts, dict[str, int]()
    for state in spec.states():
        whole = start_state(scope, x, state.name, state.shape)
        axes = len(state.shape)
        moved = work.permute(whole, (*range(1, axes), 0, axes))
        if state.name != "past":
            states[state.name] = shown_by(work, living, moved, first_of(spec, state.name))
            continue
        for k in range(spec.remembered):
            part = work.part(moved, 0, k, k + 1)
            states[f"past {k}"] = shown_by(work, living, work.reshape(part, work.shape(part)[1:]), 0)
    for of in spec.populations:
        own = {name: states.pop(f"{of.name}.{name}") for name in states_of(of.cell)}
        states |= {f"{of.name}.{name}": tensor for name, tensor in stack_states(work, of, own).items()}
    states["told"] = _emit_keys_values(work, fixed, plan.cells, "cell", states["shown"])
    for k in range(spec.remembered):
        whole = states[f"past {k}"]
        inputs, cells = work.split(whole, (facts.inputs, facts.cells), 0)
        keys_values = (
            _emit_keys_values(work, fixed, plan.inputs, "in", inputs),
            _emit_keys_values(work, fixed, plan.cells, "cell", cells),
        )
        states[f"told {k}"] = work.concat(keys_values, 0)
    return states


def _store_states(scope: Scope, spec: Fabric, ends: dict[str, int], living: int | None) -> None:
    """Store the new values of states."""
    work = scope.work
    for of in spec.populations:
        own = {name: ends[f"{of.name}.{name}"] for name in stored_states(of)}
        ends = {**ends, **{f"{of.name}.{name}": tensor for name, tensor in split_states(work, of, own).items()}}
    for state in spec.states():
        if state.name == "past":
            parts = [ends[f"past {k}"] for k in range(spec.remembered)]
            end = work.concat([work.reshape(part, (1, *work.shape(part))) for part in parts], 0)
        else:
            end = shown_by(work, living, ends[state.name], first_of(spec, state.name))
        axes = len(state.shape)
        scope.keep_state(state.name, work.permute(end, (axes - 1, *range(axes - 1), axes)))


@dataclass(slots=True)
class _FabricRow:
    """Emitter of one row.

    Attributes
    ----------
    fixed : values that are constant over rows
    state : state before the row, then after it
    """

    work: GraphBuilder
    spec: Fabric
    plan: _FabricPlan
    fixed: dict[str, int]
    state: dict[str, int]

    def run(self, xs: list[int], *, resets: bool) -> int:
        """Emit the row; return the keys and values that outputs read."""
        work, spec, state = self.work, self.spec, self.state
        if resets:
            state |= {name: work.binary("mul_nonzero", of, xs[-1]) for name, of in state.items()}
        began = [work.concat((xs[0], state["told"]), 0), *(state[f"told {k}"] for k in range(spec.remembered))]
        cells = work.concat((xs[1], state["shown"]), 0) if spec.remembered else 0
        for _ in range(spec.inner_steps):
            self._inner_step(xs[0], began)
        read = self._read_cells(began)
        if spec.remembered:
            keys_values, past = began[:-1], [cells, *(state[f"past {k}"] for k in range(spec.remembered - 1))]
            state |= {f"told {k}": of for k, of in enumerate(keys_values)} | {
                f"past {k}": of for k, of in enumerate(past)
            }
        return read

    def _inner_step(self, inputs: int, began: list[int]) -> None:
        """Emit one inner step: all cells read, then step."""
        work, spec, plan, state = self.work, self.spec, self.plan, self.state
        now = work.concat((inputs, state["told"]), 0)
        kv = work.concat([now if delay == 1 else began[delay - 1] for delay in plan.facts.cell_delays], 0)
        ask = self.fixed["ask"] if spec.query == "slot" else by_node(work, state["shown"], self.fixed["ask"])
        m = attend(work, ask, kv, plan.to_cells, _tensors_below(self.fixed, "cells "), spec.heads)
        parts: list[int] = []
        for of in spec.populations:
            own, start = plan.facts.populations[of.name], f"{of.name}."
            mine = [work.part(x, 0, own.start, own.stop) for x in (m, state["shown"])]
            states = {name: state[start + name] for name in stored_states(of)}
            shown, after = step_cells(work, of, _tensors_below(self.fixed, start), mine[0], mine[1], states)
            state |= {start + name: tensor for name, tensor in after.items()}
            parts.append(shown)
        state["shown"] = shown_by(work, self.fixed.get("living"), work.concat(parts, 0), plan.facts.inputs)
        state["told"] = _emit_keys_values(work, self.fixed, plan.cells, "cell", state["shown"])

    def _read_cells(self, began: list[int]) -> int:
        """Emit keys and values of the cells that outputs read, once for each delay."""
        work, first, (low, high) = self.work, self.plan.facts.inputs, self.plan.read
        parts = [
            work.part(self.state["told"], 0, low, high)
            if delay == 1
            else work.part(began[delay - 2], 0, first + low, first + high)
            for delay in self.plan.facts.output_delays
        ]
        return work.concat(parts, 0)


def shown_by_inputs(work: GraphBuilder, spec: Fabric, p: Mapping[str, int], x: int) -> int:
    """Emit the public outputs of input nodes, ``[inputs, R, H]``, for rows ``[R, columns]``."""
    rows = work.shape(x)[0]
    parts: list[int] = []
    for name, (first, last) in spec.ports("inputs").items():
        part = work.reshape(work.part(x, 1, first, last), (1, rows, last - first))
        weight = p[f"ports.{name}.weight"]
        wide = work.shape(weight)[0]
        y = work.gemm(part, work.reshape(weight, (1, wide, last - first)), p[f"ports.{name}.bias"], trans_b=True)
        parts.append(work.permute(work.reshape(y, (rows, wide // spec.hidden, spec.hidden)), (1, 0, 2)))
    return work.concat(parts, 0)


def emit_outputs(work: GraphBuilder, spec: Fabric, p: Mapping[str, int], o: int, living: int | None) -> int:
    """Emit rows of all outputs ``[R, columns]`` from the values of their nodes, ``[outputs, R, H]``.

    Masked nodes have zeros there; `living` ``[nodes, 1]`` is 1 for the others; None: no node is masked.
    """
    return work.concat([_port(work, spec, port, p, o, living) for port in spec.outputs], 1)


def _port(work: GraphBuilder, spec: Fabric, port: OutPort, p: Mapping[str, int], o: int, living: int | None) -> int:
    own, h, first = spec.facts.ports[port.name], spec.hidden, spec.facts.senders_count
    there = None if living is None else work.part(living, 0, first + own.start, first + own.stop)
    nodes = work.part(o, 0, own.start, own.stop)
    count, rows, _ = work.shape(nodes)
    if port.aggregate == "mean" and there is not None:
        most = work.binary("max", work.reduce(there, "sum", (0,)), work.scalar(1.0))
        total = work.reshape(work.reduce(nodes, "sum", (0,)), (1, rows, h))
        read = work.binary("div", total, work.reshape(most, (1, 1, 1)))
    elif port.aggregate == "mean":
        read = work.reshape(work.reduce(nodes, "mean", (0,)), (1, rows, h))
    elif port.aggregate == "flatten":
        read = work.reshape(work.permute(nodes, (1, 0, 2)), (1, rows, count * h))
    else:
        read = _attend_nodes(work, work.permute(nodes, (1, 0, 2)), p[f"ports.{port.name}.query"], there)
    weight = work.reshape(p[f"ports.{port.name}.weight"], (1, port.dim, work.shape(read)[2]))
    y = work.gemm(read, weight, p[f"ports.{port.name}.bias"], trans_b=True)
    return work.reshape(y, (rows, port.dim))


def _attend_nodes(work: GraphBuilder, nodes: int, query: int, there: int | None) -> int:
    """Emit attention of learned queries over ``[R, n, H]`` with mask `there`, concatenated: ``[1, R, slots · H]``."""
    rows, count, h = work.shape(nodes)
    slots = work.shape(query)[0]
    ask = work.reshape(work.affine(query, h**-0.5), (1, slots, h))
    scores = work.gemm(ask, nodes, trans_b=True, groups=rows)
    if there is not None:
        scores = work.binary("mask", scores, work.reshape(there, (1, 1, count)))
    weights = work.softmax(work.reshape(scores, (rows * slots, count)))
    answers = work.gemm(work.reshape(weights, (rows, slots, count)), nodes)
    return work.reshape(answers, (1, rows, slots * h))
