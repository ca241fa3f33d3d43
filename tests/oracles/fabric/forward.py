"""In NumPy: a fabric in NumPy, all nodes of a kind at once, and the way back through all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.base import Arrays, Grads, Saved
from tests.oracles.fabric.cells import Vars, advance
from tests.oracles.fabric.tape import Tape, Var
from tests.oracles.memory import Memory, covering, start_of
from volumetric.base._typing import Array
from volumetric.fabric.layer.cell_populations import OutPort
from volumetric.fabric.layer.cell_steps import states_of
from volumetric.fabric.layer.fabric_layer import SHARPNESS
from volumetric.graph.numeric.activations import sigmoid
from volumetric.graph.numeric.softmax import softmax
from volumetric.graph.operations.edge_attention import EdgeLists, edges_of, run_edge_attend, run_edge_attend_back


def run(spec: Any, p: Arrays, x: Array, memory: Memory | None) -> tuple[Array, Saved]:
    """Return the rows of all outputs, and what `back` needs."""
    *lead, length, width = x.shape
    covered, keep = covering(memory, x.shape)
    streams = int(np.prod(lead, dtype=np.int64))
    kept = None if keep is None else keep.reshape(streams, length)
    rows = Var(np.ascontiguousarray(x.reshape(streams, length, width).swapaxes(0, 1)))
    start = {}
    for state in spec.states():
        value = start_of(covered, state.name, (*lead, *state.shape), x.dtype)
        whole = value.reshape(streams, *state.shape)
        start[state.name] = np.ascontiguousarray(np.moveaxis(whole, 0, -2))
    machine = _Machine(spec, p, streams, start)
    made = [machine.row(rows, t, None if kept is None else kept[:, t]) for t in range(length)]
    size = spec.output_shape(x.shape)[-1]
    y = np.stack([of.value for of in made]) if made else np.zeros((0, streams, size), x.dtype)
    if covered is not None and length:
        ends = machine.ends()
        for state in spec.states():
            end = np.moveaxis(ends[state.name], -2, 0)
            covered.write(state.name, np.ascontiguousarray(end.reshape(*lead, *state.shape)))
    saved: Saved = {"machine": machine, "made": made, "rows": rows, "shape": x.shape}
    return np.ascontiguousarray(y.swapaxes(0, 1).reshape(*lead, length, size)), saved


def back(saved: Saved, gy: Array) -> Grads:
    """Return the gradients of the rows and of all parameters."""
    machine, rows, shape = saved["machine"], saved["rows"], saved["shape"]
    _, streams, _ = rows.shape
    by_row = gy.reshape(streams, shape[-2], gy.shape[-1]).swapaxes(0, 1)
    for of, g in zip(saved["made"], by_row, strict=True):
        of.grad = g
    machine.tape.back()
    gx = np.zeros_like(rows.value) if rows.grad is None else rows.grad
    return Grads((gx.swapaxes(0, 1).reshape(shape),), machine.gradients())


class _Machine:
    """Streams of a fabric.

    Attributes
    ----------
    shown : what cells show, ``[cells, B, H]``
    kept : what they keep besides, by the name of the state
    past : what all senders showed when the last rows began, newest first
    """

    def __init__(self, spec: Any, p: Arrays, streams: int, start: dict[str, Array]) -> None:
        self.spec, self.facts, self.streams, self.tape = spec, spec.facts, streams, Tape()
        self._there = p["living"] != 0 if spec.dynamic else None
        self._leaves = {name: Var(value) for name, value in p.items() if name != "living"}
        facts, first = self.facts, self.facts.to_cells
        self.shown = self._living(Var(start["shown"]), facts.inputs)
        self.past = [self._living(Var(of), 0) for of in start["past"]] if spec.remembered else []
        self.kept = {name: Var(value) for name, value in start.items() if name not in ("shown", "past")}
        self._forget()
        self._to_cells = self._edges(slice(0, first), facts.starts[: facts.cells + 1], facts.cell_delays)
        self._to_outputs = self._edges(slice(first, None), facts.starts[facts.cells :] - first, facts.output_delays)
        self._far = facts.distance[:first], facts.distance[first:]
        self._from = facts.senders[:first], facts.senders[first:]
        self._prepare()

    def _living(self, x: Var, first: int) -> Var:
        """Let masked nodes show nothing, in ``[n, …]`` of the nodes from `first` on."""
        if self._there is None:
            return x
        own = self._there[first : first + len(x.value)]
        return self.tape.chosen(x, own.reshape(-1, *(1,) * (x.value.ndim - 1)))

    def _forget(self) -> None:
        """Let masked cells keep nothing."""
        for q in self.spec.populations if self._there is not None else ():
            first = self.facts.inputs + self.facts.populations[q.name].start
            for name in states_of(q.cell):
                self.kept[f"{q.name}.{name}"] = self._living(self.kept[f"{q.name}.{name}"], first)

    def _edges(self, which: slice, starts: Array, delays: list[int]) -> EdgeLists:
        """Edges, whose senders are counted once for each delay."""
        facts = self.facts
        late = np.searchsorted(delays, facts.delay[which])
        return edges_of(starts, late * facts.senders_count + facts.senders[which], len(delays) * facts.senders_count)

    def _prepare(self) -> None:
        """What does not change from row to row."""
        tape, p, spec, facts = self.tape, self._leaves, self.spec, self.facts
        code = Var(spec.places().astype(p["slot"].value.dtype))
        slots = tape.reshape(tape.add(code, p["slot"]), (len(facts.order), 1, 2 * spec.hidden))
        self._ask = tape.product(tape.take(slots, np.arange(facts.inputs, len(slots.value))), self._one("query.weight"))
        cells = np.arange(facts.inputs, facts.senders_count)
        self._offset = tape.product(tape.take(slots, cells), self._one("slot_bias.weight"))
        self._kv = tape.take(p["kv.weight"], facts.groups)
        self._own = {
            q.name: {
                name.removeprefix(f"cells.{q.name}."): tape.take(p[name], facts.shares[q.name])
                for name in p
                if name.startswith(f"cells.{q.name}.")
            }
            for q in spec.populations
        }

    def _one(self, name: str) -> Var:
        """A parameter that all nodes have."""
        of = self._leaves[name]
        return self.tape.reshape(of, (1, *of.shape))

    def _bias(self, far: Array, senders: Array) -> Var:
        """``-λ · distance``, ``[edges, heads or 1]``; -inf for edges from masked nodes."""
        cost = self._cost(far)
        if self._there is None:
            return cost
        off = np.where(self._there[senders], 0, -np.inf).astype(cost.value.dtype)
        return self.tape.add(cost, Var(off[:, None]))

    def _cost(self, far: Array) -> Var:

        p, dtype = self._leaves, self._leaves["slot"].value.dtype
        if not self.spec.learn_distance:
            return Var((-SHARPNESS * far[:, None]).astype(dtype))
        cost = self.tape.apply(p["distance"], lambda x: np.logaddexp(x, x.dtype.type(0)), sigmoid)
        return self.tape.mul(Var(-far[:, None].astype(dtype)), cost)

    def _attend(self, q: Var, kv: Var, bias: Var, edges: EdgeLists) -> Var:
        heads = self.spec.heads
        message, weights = run_edge_attend(q.value, kv.value, bias.value, edges, heads)

        def back(g: Array) -> tuple[Array, Array, Array]:
            slope, g_q, g_kv = run_edge_attend_back(g, weights, q.value, kv.value, edges, heads)
            by_edge = slope.sum(1)
            return g_q, g_kv, by_edge if bias.shape[1] == heads else by_edge.sum(1, keepdims=True)

        return self.tape.record((q, kv, bias), (message,), back)[0]

    def _told(self, shown: list[Var]) -> Var:
        """Keys and values of what was shown at several times."""
        tape = self.tape
        return tape.join([tape.product(tape.product(s, self._one("public.weight")), self._kv) for s in shown])

    def row(self, rows: Var, t: int, keep: Array | None) -> Var:
        """Compute a row of all outputs, ``[B, outputs]``."""
        tape, spec = self.tape, self.spec
        self.shown = tape.kept(self.shown, keep)
        self.kept = {name: tape.kept(of, keep) for name, of in self.kept.items()}
        self.past = [tape.kept(of, keep) for of in self.past]
        given = self._living(self._given(rows, t), 0)
        began = tape.join([given, self.shown])
        for _ in range(spec.inner_steps):
            self._inner(given, [began, *self.past])
        ended = [tape.join([given, self.shown]), began, *self.past]
        y = self._handed([ended[delay - 1] for delay in self.facts.output_delays])
        self.past = [began, *self.past][: len(self.past)]
        return y

    def _given(self, rows: Var, t: int) -> Var:
        tape, facts = self.tape, self.facts
        x = tape.take(rows, np.array([t]))
        made = []
        for port in self.spec.inputs:
            own = facts.ports[port.name]
            first, last = self.spec.ports("inputs")[port.name]
            part = tape.swap(tape.take(tape.swap(tape.reshape(x, (*x.shape[1:],))), np.arange(first, last)))
            y = tape.product(tape.reshape(part, (1, *part.shape)), self._one(f"ports.{port.name}.weight"))
            y = tape.add(y, self._leaves[f"ports.{port.name}.bias"])
            apart = tape.reshape(y, (self.streams, own.stop - own.start, self.spec.hidden))
            made.append(tape.swap(apart))
        return tape.join(made)

    def _inner(self, given: Var, before: list[Var]) -> None:
        """Let all cells read, and then step."""
        tape, spec, facts = self.tape, self.spec, self.facts
        now = tape.join([given, self.shown])
        kv = self._told([now if delay == 1 else before[delay - 1] for delay in self.facts.cell_delays])
        if spec.query == "state":
            ask = tape.product(self.shown, self._one("state_query.weight"))
        else:
            ask = tape.take(self._ask, np.arange(facts.cells))
        bias = self._bias(self._far[0], self._from[0])
        m = tape.product(self._attend(ask, kv, bias, self._to_cells), self._one("message.weight"))
        x = tape.add(tape.product(m, self._one("cell_input.weight")), self._offset)
        parts: list[Var] = []
        for q in spec.populations:
            ids = np.arange(facts.cells)[facts.populations[q.name]]
            start = f"{q.name}."
            kept: Vars = {name.removeprefix(start): of for name, of in self.kept.items() if name.startswith(start)}
            y, after = advance(tape, q.cell, self._own[q.name], tape.take(x, ids), tape.take(self.shown, ids), kept)
            self.kept |= {start + name: of for name, of in after.items()}
            parts.append(y)
        self.shown = self._living(tape.join(parts), facts.inputs)

    def _handed(self, shown: list[Var]) -> Var:
        tape, spec, facts = self.tape, self.spec, self.facts
        ask = tape.take(self._ask, np.arange(facts.cells, facts.cells + facts.outputs))
        m = self._attend(ask, self._told(shown), self._bias(self._far[1], self._from[1]), self._to_outputs)
        m = tape.product(m, self._one("message.weight"))
        bias = tape.reshape(self._leaves["readout.bias"], (facts.outputs, 1, spec.hidden))
        o = self._living(tape.add(tape.product(m, self._leaves["readout.weight"]), bias), facts.senders_count)
        return tape.join([self._port(port, o) for port in spec.outputs], 1)

    def _port(self, port: OutPort, o: Var) -> Var:
        """Return a port's part of a row, ``[B, dim]``."""
        tape, own, h = self.tape, self.facts.ports[port.name], self.spec.hidden
        count = own.stop - own.start
        by_stream = tape.swap(tape.take(o, np.arange(own.start, own.stop)))  # [B, n, H]
        if port.aggregate == "flatten":
            read = tape.reshape(by_stream, (1, self.streams, count * h))
        else:
            weights = self._port_weights(port, by_stream, count)
            read = self._mixed(weights, by_stream)
        y = tape.product(read, self._one(f"ports.{port.name}.weight"))
        y = tape.add(y, self._leaves[f"ports.{port.name}.bias"])
        return tape.reshape(y, y.shape[1:])

    def _port_weights(self, port: OutPort, nodes: Var, count: int) -> Var:
        """What each node counts, ``[B, slots, n]``."""
        dtype, tape = nodes.value.dtype, self.tape
        first = self.facts.senders_count + self.facts.ports[port.name].start
        there = np.ones(count, bool) if self._there is None else self._there[first : first + count]
        if port.aggregate == "mean":
            return Var(np.broadcast_to((there / max(there.sum(), 1)).astype(dtype), (self.streams, 1, count)))
        scale = dtype.type(self.spec.hidden**-0.5)
        # Nodes as rows: their products with the queries are scores.
        scores = tape.product(nodes, self._one(f"ports.{port.name}.query")).value  # [B, n, slots]
        ask = self._leaves[f"ports.{port.name}.query"]
        weights = softmax(np.where(there, scores.swapaxes(1, 2) * scale, dtype.type(-np.inf)))

        def back(g: Array) -> tuple[Array, Array]:
            slope = weights * (g - np.sum(g * weights, -1, keepdims=True)) * scale
            return slope.swapaxes(1, 2) @ ask.value, np.einsum("bsn,bnh->sh", slope, nodes.value)

        return tape.record((nodes, ask), (weights,), back)[0]

    def _mixed(self, weights: Var, nodes: Var) -> Var:
        """Sums of nodes, one behind the other, ``[1, B, slots · H]``."""
        y = weights.value @ nodes.value

        def back(g: Array) -> tuple[Array, Array]:
            apart = g.reshape(y.shape)
            return apart @ nodes.value.swapaxes(1, 2), weights.value.swapaxes(1, 2) @ apart

        return self.tape.record((weights, nodes), (y.reshape(1, self.streams, -1),), back)[0]

    def ends(self) -> dict[str, Array]:
        """What streams keep, with the axis of streams before the last."""
        self._forget()
        past = {"past": np.stack([of.value for of in self.past])} if self.past else {}
        return {"shown": self.shown.value, **{n: of.value for n, of in self.kept.items()}, **past}

    def gradients(self) -> dict[str, Array]:
        """Those of all parameters."""
        return {n: np.zeros_like(of.value) if of.grad is None else of.grad for n, of in self._leaves.items()}
