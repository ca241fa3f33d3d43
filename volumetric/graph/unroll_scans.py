"""Unrolls scans: emits the steps of a body one after the other, for devices without a loop.

A loop would only save compile time. On two shared Zen 4 cores, a GRU of 128 steps, 16 rows and 256 units became 2,818
nodes in 0.6 s, and 6,284 in 1.9 s with all gradients. A run took 24 ms (19 at best) versus 25 (18) for the operation
`recurrent`, and 79 ms (74) versus 84 (76) with gradients; an LSTM took 47 (31) versus 49 (26), and 151 (143) versus 169
(151) with gradients: `benchmarks/scan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from volumetric.graph.build import GraphBuilder
from volumetric.graph.inline import Emitted, inline
from volumetric.graph.operations import OPS
from volumetric.graph.operations.operation import WrittenOut
from volumetric.graph.operations.scan import scan_inputs, scan_outputs
from volumetric.graph.ops import Graph, Node
from volumetric.graph.predicates import predicated_nodes


def unroll_scans(graph: Graph) -> Graph:
    """Return an equivalent graph without scans.

    Values that depend only on a scan's constants are computed once. Unread values are not computed, such as the states
    before each step if there is no gradient.
    """
    memory = _UnrolledScans(back=any(node.op == "scan" and not node.attrs["trails"] for node in graph.nodes))
    return rebuild_graph(graph, {"scan": lambda work, node, inputs: _unroll_scan(work, node, inputs, memory)})


def write_out(graph: Graph, has_kernel: Callable[[Node], bool] = lambda node: False) -> Graph:
    """Decompose operations that can be written as others, for devices without kernels for them.

    Parameters
    ----------
    has_kernel : returns whether the device has a kernel for a node of `graph`, which then stays
    """

    def emit_of(node: Node) -> WrittenOut | None:
        op = None if has_kernel(node) else OPS.get(node.op)
        return None if op is None else op.written_out

    def emit_written_out(work: GraphBuilder, node: Node, inputs: list[int]) -> Sequence[int]:
        emit = emit_of(node)
        if emit is None:
            return work.emit(node.op, inputs, **node.attrs)
        return emit(work, node.attrs, inputs)

    names = {node.op for node in graph.nodes if emit_of(node) is not None}
    return rebuild_graph(graph, dict.fromkeys(names, emit_written_out))


def rebuild_graph(graph: Graph, emit: Mapping[str, Callable[[GraphBuilder, Node, list[int]], Sequence[int]]]) -> Graph:
    """Return a graph in which each operation named in `emit` is replaced by the nodes that its function emits."""
    if not any(node.op in emit for node in graph.nodes):
        return graph
    work = GraphBuilder(flush=graph.flush)
    computed = {i for node in graph.nodes for i in node.outputs}
    of: dict[int, int] = {}
    for i in graph.inputs:
        tensor = graph.tensors[i]
        if i in graph.derived:
            of[i] = work.derived_input(graph.derived[i], tensor.shape, tensor.dtype)
        else:
            of[i] = work.input(tensor.name, tensor.shape, tensor.dtype)
    for i, tensor in enumerate(graph.tensors):
        if tensor.key is not None and i not in computed and i not in of:
            of[i] = work.stored_tensor(tensor.key, tensor.shape, tensor.dtype, role=tensor.role)
    for i, value in graph.constants.items():
        of[i] = work.constant(value, graph.tensors[i].name)
    for node in graph.nodes:
        first, inputs = len(work.nodes), [of[i] for i in node.inputs]
        with work.at(node.where, mixes=node.mixes):
            if node.op in emit:
                outputs = emit[node.op](work, node, inputs)
            else:
                outputs = work.emit(node.op, inputs, **node.attrs)
        of.update(zip(node.outputs, outputs, strict=True))
        nodes = [each if each.tail == node.tail else replace(each, tail=node.tail) for each in work.nodes[first:]]
        if node.predicate is not None:
            nodes = predicated_nodes(nodes, node.predicate._replace(tensor=of[node.predicate.tensor]), work.shape)
        work.nodes[first:] = nodes
    written = work.finish([of[i] for i in graph.outputs])
    return replace(written, max_rows=graph.max_rows, whole_sequences=graph.whole_sequences, products=graph.products)


@dataclass(frozen=True, slots=True)
class _UnrolledScans:
    """Data about the scans that are unrolled.

    Attributes
    ----------
    back : whether a backward scan exists, which reads the results of forward steps
    steps : stacked tensor → its parts, one per step
    met : stacked states before each step → outputs of the nodes of these steps, by operation, operands and attributes;
        the backward scan reuses them instead of recomputing
    """

    back: bool
    steps: dict[int, list[int]] = field(default_factory=dict)
    met: dict[int, Emitted] = field(default_factory=dict)

    def step(self, work: GraphBuilder, x: int, t: int) -> int:
        """Return the element of a sequence that a step reads; all scans share it."""
        if x not in self.steps:
            self.steps[x] = [work.part(x, 0, i, i + 1) for i in range(work.shape(x)[0])]
        return self.steps[x][t]


def _unroll_scan(work: GraphBuilder, node: Node, inputs: list[int], memory: _UnrolledScans) -> list[int]:
    """Emit all steps of a scan and return its outputs."""
    attrs = node.attrs
    body, length, first = unroll_scans(attrs["body"]), attrs["length"], len(work.nodes)
    names, values = scan_inputs(body.inputs, attrs), scan_inputs(inputs, attrs)
    emitted = next((memory.met[x] for x in values.xs if x in memory.met), {})
    fixed = set(names.constants) | body.constants.keys()
    once: list[Node] = []
    rest: list[Node] = []
    for each in body.nodes:
        if fixed.issuperset(each.inputs):
            once.append(each)
            fixed.update(each.outputs)
        else:
            rest.append(each)
    always = inline(work, body, dict(zip(names.constants, values.constants, strict=True)), once, emitted)
    states, ys, trails = list(values.states), [], []
    for t in reversed(range(length)) if attrs["reverse"] else range(length):
        trails.append(states)
        of = {**always, **dict(zip(names.states, states, strict=True))}
        for name, x in zip(names.xs, values.xs, strict=True):
            of[name] = _without_step_axis(work, memory.step(work, x, t), body.tensors[name].shape, emitted)
        of = inline(work, body, of, rest, emitted, guarded=not memory.back)
        outputs = scan_outputs([of[i] for i in body.outputs], attrs)
        ys.append(outputs.ys)
        states = list(outputs.states)
    order = -1 if attrs["reverse"] else 1
    shapes = scan_outputs([body.tensors[i].shape for i in body.outputs], attrs)
    joined = [_stack_steps(work, [step[i] for step in ys[::order]], shape) for i, shape in enumerate(shapes.ys)]
    stacked_trails = [
        _stack_steps(work, [step[i] for step in trails[::order]], shape) for i, shape in enumerate(shapes.states)
    ]
    for i, stack in enumerate(stacked_trails):
        memory.steps[stack], memory.met[stack] = [step[i] for step in trails[::order]], emitted
    computed = {i for each in work.nodes[first:] if each.op != "reshape" for i in each.outputs}
    last = [state if state in computed else work.copy(state) for state in states]
    return [*joined, *last, *(stacked_trails if attrs["trails"] else [])]


def _without_step_axis(work: GraphBuilder, x: int, shape: tuple[int, ...], emitted: Emitted) -> int:
    """Return a step's element of a sequence without the axis of steps."""
    key = "step", (x,), shape
    if key not in emitted:
        emitted[key] = (x if work.shape(x) == shape else work.reshape(x, shape),)
    return emitted[key][0]


def _stack_steps(work: GraphBuilder, steps: list[int], shape: tuple[int, ...]) -> int:
    """Stack values of steps along a new first axis, in a separate tensor."""
    if not steps:
        return work.copy(work.zeros((0, *shape)))
    parts = [work.reshape(step, (1, *shape)) for step in steps]
    return work.concat(parts, 0) if len(parts) > 1 else work.copy(parts[0])
