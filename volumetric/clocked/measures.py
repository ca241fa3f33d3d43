"""Cost of a clocked network before it runs: its buckets, bytes of stream states, bytes of training history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

from volumetric.base._typing import Shape
from volumetric.clocked.machine import Clocked
from volumetric.clocked.states import stream_states
from volumetric.clocked.window import Machine, TickWindow
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate

BYTES = 4
"""Bytes of a float32 or int32 number."""


def bucket_counts(machine: Machine) -> dict[str, tuple[int, int]]:
    """Return `Bucket.way` (or ``"identity"``) → number of buckets and number of layers."""
    counts: dict[str, tuple[int, int]] = {}
    for bucket in machine.buckets:
        name = "identity" if bucket.identity else bucket.way
        buckets, layers = counts.get(name, (0, 0))
        counts[name] = (buckets + 1, layers + bucket.size)
    return counts


def state_bytes(clocked: Clocked) -> int:
    """Return the bytes of one stream's states."""
    return BYTES * sum(prod(state.shape) for state in stream_states(clocked).values())


def tick_bytes(clocked: Clocked) -> int:
    """Return the bytes of a tick's inputs and results that its gradients read, for one stream.

    A tensor that one layer writes and another reads counts once.
    """
    machine, work = Machine(clocked, 1), GraphBuilder()
    state = {key: work.stored_tensor(key, b.shape(1), b.dtype, role="state") for key, b in machine.buffers.items()}
    params: dict[str, int] = {}

    def param(key: str, shape: Shape) -> int:
        return params.setdefault(key, work.stored_tensor(key, shape))

    def stack(keys: Sequence[str], shape: Shape) -> int:
        return param("+".join(keys), (len(keys), *shape))

    window = TickWindow(work, machine, dict(state), param, stack)
    ports = clocked.network.ports.items()
    inputs = {name: work.input(name, (1, *port.shape), port.dtype) for name, port in ports}
    window.tick(inputs)
    forward = tuple(work.nodes)
    floats = {key: i for key, i in state.items() if machine.buffers[key].dtype == "float32"}
    moved = {key: window.state[key] for key, i in floats.items() if window.state[key] != i}
    seeds = {i: work.input(f"slope of {key}", work.shape(i)) for key, i in moved.items()}
    differentiate(work, seeds, [*params.values(), *floats.values()])
    views = {node.outputs[0]: node.inputs[0] for node in forward if node.op == "reshape"}
    later = {i: window.state[key] for key, i in state.items()}
    computed = {*inputs.values(), *(i for node in forward for i in node.outputs)}
    read = {i for node in work.nodes[len(forward) :] for i in node.inputs}
    # The states that a tick reads are results of the previous tick.
    roots = {_root(views, later.get(i, i)) for i in (_root(views, i) for i in read)}
    return BYTES * sum(prod(work.shape(i)) for i in roots & computed)


def _root(views: Mapping[int, int], i: int) -> int:
    """Return the tensor whose storage a tensor shares."""
    while i in views:
        i = views[i]
    return i


def history_bytes(clocked: Clocked, window: int, *, checkpoint: int = 0, batch: int = 1) -> int:
    """Return the bytes that backpropagation through a window of ticks stores.

    ``batch · (⌈window / c⌉ · state + c · tick)`` with the bytes of `state_bytes` and `tick_bytes`. Checkpoints are c
    ticks apart, and the ticks in between are recomputed; without checkpoints, c is the window.
    """
    apart = min(checkpoint or window, window)
    return batch * (ceil(window / apart) * state_bytes(clocked) + apart * tick_bytes(clocked))
