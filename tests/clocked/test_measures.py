"""What clocked networks cost is what their graphs say."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from tests.clocked.machines import machine
from tests.clocked.test_streams import CHAIN
from volumetric import Clocked, Coord, Every
from volumetric.builders.sequential import chain
from volumetric.clocked.measures import bucket_counts, history_bytes, state_bytes, tick_bytes
from volumetric.clocked.tick_learning import MachineStreams, RecomputedWindow, WindowTicks, begin_window
from volumetric.clocked.window import Machine, TickWindow
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.layers import Dense


def remembered(clocked: Clocked, ticks: int, batch: int) -> int:
    """Bytes of all that the backward nodes of a window read of its forward nodes, its rows and its first state."""
    work, kept = GraphBuilder(), Machine(clocked, batch)
    state = {key: work.stored_tensor(key, b.shape(batch), b.dtype, role="state") for key, b in kept.buffers.items()}
    weights: dict[str, int] = {}

    def param(key: Any, shape: Any) -> int:
        name = key if isinstance(key, str) else "+".join(key)
        shape = shape if isinstance(key, str) else (len(key), *shape)
        return weights.setdefault(name, work.stored_tensor(name, shape))

    window = TickWindow(work, kept, dict(state), param, param)
    slopes = {}
    for t in range(ticks):
        ports = clocked.network.ports.items()
        made = window.tick({n: work.input(f"{n} {t}", (batch, *p.shape), p.dtype) for n, p in ports})
        slopes |= {y: work.input("slope", work.shape(y)) for y in made.values()}
    slopes |= {i: work.input("slope", work.shape(i)) for key, i in window.state.items() if i != state[key]}
    forward = len(work.nodes)
    differentiate(work, slopes, [*weights.values(), *state.values()])
    views = {node.outputs[0]: node.inputs[0] for node in work.nodes[:forward] if node.op == "reshape"}
    found = set()
    for node in work.nodes[forward:]:
        for i in node.inputs:
            while i in views:
                i = views[i]
            found.add(i)
    ours = {*range(len(work.tensors))} - {i for node in work.nodes[forward:] for i in node.outputs} - {*slopes.values()}
    roles = ("scratch", "input", "state")
    return 4 * sum(prod(work.shape(i)) for i in found & ours if work.tensors[i].role in roles)


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["chain", 0, 4, 5, 6, 7, 9])
def test_history_is_what_the_graph_of_a_window_remembers(which: Any) -> None:
    clocked = Clocked(network=CHAIN) if which == "chain" else machine(which)
    tick = tick_bytes(clocked)
    ticks = 40
    told = history_bytes(clocked, ticks, batch=3)
    assert told == 3 * (state_bytes(clocked) + ticks * tick)
    assert told == pytest.approx(remembered(clocked, ticks, 3), rel=0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["chain", 6])
def test_checkpoints_remember_as_much_as_is_told(which: Any) -> None:
    clocked = Clocked(network=CHAIN) if which == "chain" else machine(which)
    kept, work, (ticks, apart, batch) = Machine(clocked, 2), GraphBuilder(), (60, 20, 2)
    given = tuple(clocked.network.ports)
    run = begin_window(
        work,
        MachineStreams(kept, "x"),
        WindowTicks(count=ticks, fed_inputs=given, rows=tuple(range(ticks)), read=(), fresh=False, resets=False),
    )
    parts = RecomputedWindow(
        work, work.stored_tensor, lambda keys, shape: work.stored_tensor("+".join(keys), (len(keys), *shape)), apart
    )
    made = parts.forward(run, kept)
    parts.backward(run, {y: work.input("slope", work.shape(y)) for each in made for y in each.values()})
    views = {node.outputs[0]: node.inputs[0] for node in work.nodes if node.op == "reshape"}

    def root(i: int) -> int:
        while i in views:
            i = views[i]
        return i

    slopes = {i for i, tensor in enumerate(work.tensors) if tensor.name == "slope"}
    read: list[set[int]] = [set()]  # what gradients read of what is no gradient, part by part
    once = 0
    for node in work.nodes:
        if node.inputs[:1] == (run.rows[given[0]],) and node.attrs["starts"][0] % apart == 0:
            once += 1  # a part begins, and later again
            if once > ticks // apart:
                read.append(set())
        if slopes.intersection(node.inputs):
            slopes.update(node.outputs)
            read[-1].update(root(i) for i in node.inputs if i not in slopes)
    assert len(read) == ticks // apart
    states = [{root(i) for i in part.values()} for part in parts.before]
    fixed = {i for i, tensor in enumerate(work.tensors) if tensor.role in ("constant", "parameter")}

    def size(tensors: set[int]) -> int:
        return 4 * sum(prod(work.shape(i)) for i in tensors - fixed)

    found = sum(map(size, states)) + max(size(part - set().union(*states)) for part in read)
    assert history_bytes(clocked, ticks, checkpoint=apart, batch=batch) == pytest.approx(found, rel=0.05)


def test_checkpoints_remember_states_and_what_lies_between_two() -> None:
    clocked = Clocked(network=CHAIN)
    state, tick = state_bytes(clocked), tick_bytes(clocked)
    assert state == 4 * (4 + 6 + 5 + 5 + 5 + 5 + 5 + 3)  # the row held, outputs, states of LSTM and GRU
    assert history_bytes(clocked, 100, checkpoint=8) == 13 * state + 8 * tick
    assert history_bytes(clocked, 5, checkpoint=8) == history_bytes(clocked, 5)


def test_ways_count_layers_and_buckets() -> None:
    dense = [Dense(in_features=2, out_features=2) for _ in range(4)]
    clocked = Clocked(network=chain(dense, (2,)), clocks={Coord(3): Every(period=2)})
    assert bucket_counts(Machine(clocked, 1)) == {"grouped": (1, 3), "rows": (1, 1)}
