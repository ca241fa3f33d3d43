"""A window of ticks as one program: states are buffers of its store; only rows go in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from volumetric.base._typing import Shape
from volumetric.clocked.window import Machine, TickWindow
from volumetric.graph.build import GraphBuilder
from volumetric.graph.ops import Graph
from volumetric.graph.parameter_stacks import stack_key


def window_graph(machine: Machine, rows: int, per_row: int, fed_inputs: Sequence[str], *, resets: bool) -> Graph:
    """Return the graph of ``rows · per_row`` ticks.

    Inputs: rows of each of `fed_inputs`, ``[rows, streams, …]``, each read at the first of its ticks; if requested,
    resets, float32 ``[rows · per_row, streams]``. Outputs: ``[rows · per_row, streams, …]`` of every output of the
    network. Buffers: weights by key, stacked weights by `stack_key`, and the machine's states.
    """
    work = GraphBuilder(flush=True)
    ports = machine.clocked.network.ports
    arrays = {n: work.input(n, (rows, machine.batch, *ports[n].shape), ports[n].dtype) for n in fed_inputs}
    marks = work.input("resets", (rows * per_row, machine.batch)) if resets else None
    state = read_states(work, machine, str)

    def stack(keys: Sequence[str], shape: Shape) -> int:
        return work.stored_tensor(stack_key(keys), (len(keys), *shape))

    window = TickWindow(work, machine, dict(state), work.stored_tensor, stack)
    series: dict[str, list[int]] = {name: [] for name in machine.clocked.network.taps}
    for t in range(rows * per_row):
        row, late = divmod(t, per_row)
        now = {} if late else {n: at_tick(work, x, row) for n, x in arrays.items()}
        for name, y in window.tick(now, None if marks is None else at_tick(work, marks, t)).items():
            series[name].append(work.reshape(y, (1, *work.shape(y))))
    outputs = [work.concat(ys, 0) for ys in series.values()]
    write_states(work, window.state, state, str)
    return work.finish(outputs)


def read_states(work: GraphBuilder, machine: Machine, place: Callable[[str], str]) -> dict[str, int]:
    """Return the states of streams from their buffers, which `place` names."""
    return {
        key: work.stored_tensor(place(key), buffer.shape(machine.batch), buffer.dtype, role="state")
        for key, buffer in machine.buffers.items()
    }


def write_states(
    work: GraphBuilder,
    newest: Mapping[str, int],
    stored: Mapping[str, int],
    place: Callable[[str], str],
    apply: int | None = None,
) -> None:
    """Write the states of streams after a window into their buffers, unless `apply` is 0.

    Parameters
    ----------
    newest, stored : state → its new value, and its value in the buffer; a state that was not read is always written
    place : returns the name of a state's buffer
    """
    read = set(stored.values())
    views = {node.outputs[0]: node.inputs[0] for node in work.nodes if node.op == "reshape"}
    moved = {key: value for key, value in newest.items() if value != stored.get(key)}
    for key, value in moved.items():  # copy values of other states before any buffer is overwritten
        moved[key] = _copy(work, value) if _root(views, value) in read else value
    for key, value in moved.items():
        work.assign(place(key), value, apply)


def at_tick(work: GraphBuilder, x: int, t: int) -> int:
    """Emit index `t` of the first axis."""
    return work.reshape(work.part(x, 0, t, t + 1), work.shape(x)[1:])


def _root(views: Mapping[int, int], i: int) -> int:
    """Return the tensor whose storage a tensor shares."""
    while i in views:
        i = views[i]
    return i


def _copy(work: GraphBuilder, x: int) -> int:
    shape = work.shape(x)
    return work.emit("slice", (x,), starts=(0,) * len(shape), stops=shape)[0]
