"""Vectorises a graph of one sequence over several sequences: each operation runs once for all of them.

Tensors that differ between sequences get a new first axis. Others, such as parameters and values that depend only on
them, are computed once and shared. Most operations only change their attributes for the new axis; those that read rows,
samples or groups of products get more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from volumetric.base._typing import Shape
from volumetric.base.errors import UnsupportedError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.recurrent_inputs import recurrent_inputs
from volumetric.graph.ops import Graph, Node
from volumetric.graph.unroll_scans import unroll_scans, write_out


def batch_graph(graph: Graph, count: int) -> Graph:
    """Return `graph`, of fixed shape and without states, for `count` sequences: inputs and outputs ``[count, …]``.

    Raises
    ------
    UnsupportedError : an operation has no rule for several sequences
    """
    graph = write_out(unroll_scans(graph))
    work = GraphBuilder()
    several = BatchedBuilder(work, count)
    computed = {i for node in graph.nodes for i in node.outputs}
    of: dict[int, int] = {}
    for i in graph.inputs:
        tensor = graph.tensors[i]
        of[i] = work.input(tensor.name, (count, *tensor.shape), tensor.dtype)
        several.batched.add(of[i])
    for i, tensor in enumerate(graph.tensors):
        if tensor.key is not None and i not in computed and i not in of:
            of[i] = work.stored_tensor(tensor.key, tensor.shape, tensor.dtype, role=tensor.role)
    for i, value in graph.constants.items():
        of[i] = work.constant(value, graph.tensors[i].name)
    for node in graph.nodes:
        inputs = [of[i] for i in node.inputs]
        with work.at(node.where, mixes=node.mixes):
            if several.batched.isdisjoint(inputs):
                outputs = work.emit(node.op, inputs, **node.attrs)
            else:
                outputs = several.emit(node, inputs)
        of.update(zip(node.outputs, outputs, strict=True))
    return work.finish([several.repeat_shared(of[i]) for i in graph.outputs])


@dataclass(frozen=True, slots=True)
class BatchedBuilder:
    """The context of the rules: the graph under construction, and which of its tensors differ by sequence."""

    work: GraphBuilder
    count: int
    batched: set[int] = field(default_factory=set)

    def emit(self, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
        """Emit a node with inputs that differ by sequence; all of its outputs differ, too."""
        rule = _RULES.get(node.op)
        if rule is None:
            raise UnsupportedError(f"{node.op} {node.where} cannot run for several sequences")
        outputs = rule(self, node, inputs)
        self.batched.update(outputs)
        return outputs

    def shape(self, i: int) -> Shape:
        """Return the shape of a tensor for one sequence."""
        shape = self.work.shape(i)
        return shape[1:] if i in self.batched else shape

    def repeat_shared(self, i: int) -> int:
        """Return a tensor with the axis of sequences, repeated if all sequences share it."""
        if i in self.batched:
            return i
        shape = self.work.shape(i)
        one = self.work.reshape(i, (1, *shape))
        if self.work.tensors[i].dtype == "int32":
            return self.work.concat((one,) * self.count, 0)
        return self.work.broadcast(one, (self.count, *shape))

    def merge(self, i: int) -> int:
        """Return a tensor whose first axis joins the first axes of all sequences."""
        count, first, *rest = self.work.shape(self.repeat_shared(i))
        return self.work.reshape(self.repeat_shared(i), (count * first, *rest))

    def split(self, i: int) -> int:
        """Undo `merged`."""
        first, *rest = self.work.shape(i)
        return self.work.reshape(i, (self.count, first // self.count, *rest))

    def require_shared(self, node: Node, *inputs: int) -> None:
        """Raise `UnsupportedError` if any of the inputs differs by sequence."""
        if not self.batched.isdisjoint(inputs):
            raise UnsupportedError(
                f"{node.op} {node.where} cannot run for several sequences if they do not share its inputs"
            )


_Rule: TypeAlias = Callable[[BatchedBuilder, Node, Sequence[int]], tuple[int, ...]]


def _unary(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    return of.work.emit(node.op, inputs, **node.attrs)


def _binary(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Give operands that differ as many axes as the result, so that their axes of sequences align."""
    axes = max(len(of.shape(i)) for i in inputs)
    wide = []
    for i in inputs:
        own = of.shape(i)
        shape = (of.count, *(1,) * (axes - len(own)), *own)
        wide.append(of.work.reshape(i, shape) if i in of.batched else i)
    return of.work.emit(node.op, wide, **node.attrs)


def _axes_rule(**attrs: Callable[[BatchedBuilder, tuple[int, ...]], tuple[int, ...]]) -> _Rule:
    """Return the rule of an operation with attributes that are axis numbers, or have one entry per axis."""

    def rule(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
        changed = {name: change(of, node.attrs[name]) for name, change in attrs.items()}
        return of.work.emit(node.op, [of.repeat_shared(i) for i in inputs], **{**node.attrs, **changed})

    return rule


def _one_axis(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    attrs = {**node.attrs, "axis": node.attrs["axis"] + 1}
    return of.work.emit(node.op, [of.repeat_shared(i) for i in inputs], **attrs)


def _next_axes(of: BatchedBuilder, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


def _with_first(first: int) -> Callable[[BatchedBuilder, tuple[int, ...]], tuple[int, ...]]:
    return lambda of, values: (first, *values)


def _with_count(of: BatchedBuilder, values: tuple[int, ...]) -> tuple[int, ...]:
    return (of.count, *values)


def _rows_rule(*, of_each: int = 1) -> _Rule:
    """Return the rule of an operation whose first inputs are rows or samples, and whose other inputs are shared."""

    def rule(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
        of.require_shared(node, *inputs[of_each:])
        outputs = of.work.emit(node.op, [*map(of.merge, inputs[:of_each]), *inputs[of_each:]], **node.attrs)
        return tuple(map(of.split, outputs))

    return rule


def _lookup(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Look up ids of all sequences in a shared table, or shared ids in tables concatenated along the features."""
    work, (table, ids) = of.work, inputs
    if table not in of.batched:
        return (of.split(work.gather_rows(table, of.merge(ids))),)
    of.require_shared(node, ids)
    rows, width = of.shape(table)
    beside = work.reshape(work.permute(table, (1, 0, 2)), (rows, of.count * width))
    gathered = work.gather_rows(beside, ids)
    return (work.permute(work.reshape(gathered, (work.shape(ids)[0], of.count, width)), (1, 0, 2)),)


def _recurrent(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    from_x, weight, *rest = inputs
    starts, bias, keep = recurrent_inputs(rest, node.attrs)
    of.require_shared(node, weight, *bias)
    ends = (*map(of.merge, starts), *bias, *map(of.merge, keep))
    return tuple(map(of.split, of.work.emit("recurrent", (of.merge(from_x), weight, *ends), **node.attrs)))


def _cell(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Concatenate the rows of all sequences; a leading axis of states stays first."""
    work = of.work
    from_x, from_h, bias, *before = inputs
    of.require_shared(node, bias)

    def merge_rows(i: int) -> int:
        states, rows, size = of.shape(i)
        return work.reshape(work.permute(of.repeat_shared(i), (1, 0, 2, 3)), (states, of.count * rows, size))

    def split_rows(i: int) -> int:
        states, rows, size = work.shape(i)
        return work.permute(work.reshape(i, (states, of.count, rows // of.count, size)), (1, 0, 2, 3))

    all_bias = work.concat((bias,) * of.count, 0)
    outputs = work.emit(node.op, (of.merge(from_x), of.merge(from_h), all_bias, *map(merge_rows, before)), **node.attrs)
    return tuple(split_rows(i) if len(work.shape(i)) == 3 else of.split(i) for i in outputs)


def _linear_scan(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    u, a, *rest = inputs
    if len(of.shape(a)) == 1:
        of.require_shared(node, a)
    else:
        a = of.merge(a)
    return (of.split(of.work.emit(node.op, (of.merge(u), a, *map(of.merge, rest)), **node.attrs)[0]),)


def _rotate_scan(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    u, g, phi, *rest = inputs
    of.require_shared(node, g, phi)
    return (of.split(of.work.emit(node.op, (of.merge(u), g, phi, *map(of.merge, rest)), **node.attrs)[0]),)


def _edge_attend(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Concatenate the streams of all sequences."""
    q, kv, *lists = inputs
    of.require_shared(node, *lists)

    def merge_streams(i: int, streams: int) -> int:
        nodes, _, width = of.shape(i)
        wide = of.work.broadcast(of.repeat_shared(i), (of.count, nodes, streams, width))
        return of.work.reshape(of.work.permute(wide, (1, 0, 2, 3)), (nodes, of.count * streams, width))

    def split_streams(i: int) -> int:
        nodes, streams, width = of.work.shape(i)
        split = of.work.reshape(i, (nodes, of.count, streams // of.count, width))
        return of.work.permute(split, (1, 0, 2, 3))

    batch = of.shape(kv)[1]
    own = q if q not in of.batched and of.shape(q)[1] == 1 else merge_streams(q, batch)
    return tuple(map(split_streams, of.work.emit(node.op, (own, merge_streams(kv, batch), *lists), **node.attrs)))


def _gemm(of: BatchedBuilder, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Add groups, or add rows if all sequences multiply one matrix."""
    work, attrs, (a, b, *bias) = of.work, node.attrs, inputs
    of.require_shared(node, *bias)
    groups = attrs["groups"]
    each = [i for i in bias if len(work.shape(i)) == 2]  # one bias row per group
    most = max(of.shape(a)[0], of.shape(b)[0], groups)
    if most == 1 and b not in of.batched and not attrs["trans_a"]:
        _, _, rows, k = work.shape(a)
        bias = [work.reshape(i, work.shape(i)[-1:]) for i in bias]
        [product] = work.emit("gemm", (work.reshape(a, (1, of.count * rows, k)), b, *bias), **attrs)
        return (work.reshape(product, (of.count, 1, rows, work.shape(product)[2])),)
    a, b = (_all_groups(of, i, most) if i in of.batched else i for i in (a, b))
    if groups == most:
        bias = [work.concat((i,) * of.count, 0) if i in each else i for i in bias]
        return (of.split(work.emit("gemm", (a, b, *bias), **{**attrs, "groups": of.count * most})[0]),)
    product = work.gemm(a, b, trans_a=attrs["trans_a"], trans_b=attrs["trans_b"], groups=of.count * most)
    _, m, n = work.shape(product)
    apart = work.reshape(product, (of.count, most // groups, groups, m, n))
    total = work.reshape(work.reduce(apart, "sum", (1,)), (of.count, groups, m, n))
    for i in bias:
        total = work.add(total, work.reshape(i, (groups, 1, n)) if i in each else i)
    return (work.unary(total, attrs["activation"]),)


def _all_groups(of: BatchedBuilder, i: int, most: int) -> int:
    """Return an operand of products with `most` groups for each sequence, repeated if it has fewer."""
    count, groups, *rest = of.work.shape(i)
    if groups != most:
        wide = of.work.reshape(i, (count, 1, groups, *rest))
        i = of.work.broadcast(wide, (count, most // groups, groups, *rest))
    return of.work.reshape(i, (count * most, *rest))


_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "unary": _unary,
        "binary": _binary,
        "reshape": _axes_rule(shape=_with_count),
        "broadcast": _axes_rule(shape=_with_count),
        "permute": _axes_rule(perm=lambda of, perm: (0, *_next_axes(of, perm))),
        "slice": _axes_rule(starts=_with_first(0), stops=_with_count),
        "pad": _axes_rule(before=_with_first(0), after=_with_first(0)),
        "reduce": _axes_rule(axes=_next_axes),
        "concat": _one_axis,
        "flip": _one_axis,
        "gemm": _gemm,
        "gather_rows": _lookup,
        "recurrent": _recurrent,
        "cell": _cell,
        "linear_scan": _linear_scan,
        "rotate_scan": _rotate_scan,
        "edge_attend": _edge_attend,
        "rope": _rows_rule(),
        "gumbel": _rows_rule(of_each=2),
        **dict.fromkeys(("softmax", "entmax", "keep_largest", "norm"), _rows_rule()),
        **dict.fromkeys(("unfold", "fold", "pool_max", "pool_sum", "pool_spread"), _rows_rule()),
    }
)
"""Operation → its rule for several sequences."""


def can_batch(graph: Graph) -> bool:
    """Return whether `batch_graph` supports a graph of fixed shape whose inputs are not empty."""
    try:
        batch_graph(graph, 2)
    except UnsupportedError:
        return False
    return all(prod(graph.tensors[i].shape) for i in graph.inputs)
