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
from volumetric.graph.operations.recurrent_inputs import given
from volumetric.graph.ops import Graph, Node
from volumetric.graph.unroll import unroll_scans, write_out


def side_by_side(graph: Graph, count: int) -> Graph:
    """Return `graph`, of fixed shape and without states, for `count` sequences: inputs and outputs ``[count, …]``.

    Raises
    ------
    UnsupportedError : an operation has no rule for several sequences
    """
    graph = write_out(unroll_scans(graph))
    work = GraphBuilder()
    several = Several(work, count)
    computed = {i for node in graph.nodes for i in node.outputs}
    of: dict[int, int] = {}
    for i in graph.inputs:
        tensor = graph.tensors[i]
        of[i] = work.input(tensor.name, (count, *tensor.shape), tensor.dtype)
        several.lifted.add(of[i])
    for i, tensor in enumerate(graph.tensors):
        if tensor.key is not None and i not in computed and i not in of:
            of[i] = work.stored(tensor.key, tensor.shape, tensor.dtype, role=tensor.role)
    for i, value in graph.constants.items():
        of[i] = work.constant(value, graph.tensors[i].name)
    for node in graph.nodes:
        inputs = [of[i] for i in node.inputs]
        with work.at(node.where, mixes=node.mixes):
            if several.lifted.isdisjoint(inputs):
                outputs = work.emit(node.op, inputs, **node.attrs)
            else:
                outputs = several.emit(node, inputs)
        of.update(zip(node.outputs, outputs, strict=True))
    return work.finish([several.spread(of[i]) for i in graph.outputs])


@dataclass(frozen=True, slots=True)
class Several:
    """The context of the rules: the graph under construction, and which of its tensors differ by sequence."""

    work: GraphBuilder
    count: int
    lifted: set[int] = field(default_factory=set)

    def emit(self, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
        """Emit a node with inputs that differ by sequence; all of its outputs differ, too."""
        rule = _RULES.get(node.op)
        if rule is None:
            raise UnsupportedError(f"{node.op} {node.where} cannot run for several sequences")
        outputs = rule(self, node, inputs)
        self.lifted.update(outputs)
        return outputs

    def shape(self, i: int) -> Shape:
        """Return the shape of a tensor for one sequence."""
        shape = self.work.shape(i)
        return shape[1:] if i in self.lifted else shape

    def spread(self, i: int) -> int:
        """Return a tensor with the axis of sequences, repeated if all sequences share it."""
        if i in self.lifted:
            return i
        shape = self.work.shape(i)
        one = self.work.reshape(i, (1, *shape))
        if self.work.tensors[i].dtype == "int32":
            return self.work.concat((one,) * self.count, 0)
        return self.work.broadcast(one, (self.count, *shape))

    def merged(self, i: int) -> int:
        """Return a tensor whose first axis joins the first axes of all sequences."""
        count, first, *rest = self.work.shape(self.spread(i))
        return self.work.reshape(self.spread(i), (count * first, *rest))

    def apart(self, i: int) -> int:
        """Undo `merged`."""
        first, *rest = self.work.shape(i)
        return self.work.reshape(i, (self.count, first // self.count, *rest))

    def shared(self, node: Node, *inputs: int) -> None:
        """Raise `UnsupportedError` if any of the inputs differs by sequence."""
        if not self.lifted.isdisjoint(inputs):
            raise UnsupportedError(
                f"{node.op} {node.where} cannot run for several sequences if they do not share its inputs"
            )


_Rule: TypeAlias = Callable[[Several, Node, Sequence[int]], tuple[int, ...]]


def _unary(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    return of.work.emit(node.op, inputs, **node.attrs)


def _binary(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Give operands that differ as many axes as the result, so that their axes of sequences align."""
    axes = max(len(of.shape(i)) for i in inputs)
    wide = []
    for i in inputs:
        own = of.shape(i)
        shape = (of.count, *(1,) * (axes - len(own)), *own)
        wide.append(of.work.reshape(i, shape) if i in of.lifted else i)
    return of.work.emit(node.op, wide, **node.attrs)


def _axes(**attrs: Callable[[Several, tuple[int, ...]], tuple[int, ...]]) -> _Rule:
    """Return the rule of an operation with attributes that are axis numbers, or have one entry per axis."""

    def rule(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
        changed = {name: change(of, node.attrs[name]) for name, change in attrs.items()}
        return of.work.emit(node.op, [of.spread(i) for i in inputs], **{**node.attrs, **changed})

    return rule


def _one_axis(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    attrs = {**node.attrs, "axis": node.attrs["axis"] + 1}
    return of.work.emit(node.op, [of.spread(i) for i in inputs], **attrs)


def _later(of: Several, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


def _from(first: int) -> Callable[[Several, tuple[int, ...]], tuple[int, ...]]:
    return lambda of, values: (first, *values)


def _sizes(of: Several, values: tuple[int, ...]) -> tuple[int, ...]:
    return (of.count, *values)


def _rows(*, of_each: int = 1) -> _Rule:
    """Return the rule of an operation whose first inputs are rows or samples, and whose other inputs are shared."""

    def rule(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
        of.shared(node, *inputs[of_each:])
        outputs = of.work.emit(node.op, [*map(of.merged, inputs[:of_each]), *inputs[of_each:]], **node.attrs)
        return tuple(map(of.apart, outputs))

    return rule


def _lookup(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Look up ids of all sequences in a shared table, or shared ids in tables concatenated along the features."""
    work, (table, ids) = of.work, inputs
    if table not in of.lifted:
        return (of.apart(work.gather_rows(table, of.merged(ids))),)
    of.shared(node, ids)
    rows, width = of.shape(table)
    beside = work.reshape(work.permute(table, (1, 0, 2)), (rows, of.count * width))
    gathered = work.gather_rows(beside, ids)
    return (work.permute(work.reshape(gathered, (work.shape(ids)[0], of.count, width)), (1, 0, 2)),)


def _recurrent(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    from_x, weight, *rest = inputs
    starts, bias, keep = given(rest, node.attrs)
    of.shared(node, weight, *bias)
    ends = (*map(of.merged, starts), *bias, *map(of.merged, keep))
    return tuple(map(of.apart, of.work.emit("recurrent", (of.merged(from_x), weight, *ends), **node.attrs)))


def _cell(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Concatenate the rows of all sequences; a leading axis of states stays first."""
    work = of.work
    from_x, from_h, bias, *before = inputs
    of.shared(node, bias)

    def merge_rows(i: int) -> int:
        states, rows, size = of.shape(i)
        return work.reshape(work.permute(of.spread(i), (1, 0, 2, 3)), (states, of.count * rows, size))

    def split_rows(i: int) -> int:
        states, rows, size = work.shape(i)
        return work.permute(work.reshape(i, (states, of.count, rows // of.count, size)), (1, 0, 2, 3))

    all_bias = work.concat((bias,) * of.count, 0)
    outputs = work.emit(
        node.op, (of.merged(from_x), of.merged(from_h), all_bias, *map(merge_rows, before)), **node.attrs
    )
    return tuple(split_rows(i) if len(work.shape(i)) == 3 else of.apart(i) for i in outputs)


def _linear_scan(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    u, a, *rest = inputs
    if len(of.shape(a)) == 1:
        of.shared(node, a)
    else:
        a = of.merged(a)
    return (of.apart(of.work.emit(node.op, (of.merged(u), a, *map(of.merged, rest)), **node.attrs)[0]),)


def _rotate_scan(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    u, g, phi, *rest = inputs
    of.shared(node, g, phi)
    return (of.apart(of.work.emit(node.op, (of.merged(u), g, phi, *map(of.merged, rest)), **node.attrs)[0]),)


def _edge_attend(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Concatenate the streams of all sequences."""
    q, kv, *lists = inputs
    of.shared(node, *lists)

    def merge_streams(i: int, streams: int) -> int:
        nodes, _, width = of.shape(i)
        wide = of.work.broadcast(of.spread(i), (of.count, nodes, streams, width))
        return of.work.reshape(of.work.permute(wide, (1, 0, 2, 3)), (nodes, of.count * streams, width))

    def split_streams(i: int) -> int:
        nodes, streams, width = of.work.shape(i)
        split = of.work.reshape(i, (nodes, of.count, streams // of.count, width))
        return of.work.permute(split, (1, 0, 2, 3))

    batch = of.shape(kv)[1]
    own = q if q not in of.lifted and of.shape(q)[1] == 1 else merge_streams(q, batch)
    return tuple(map(split_streams, of.work.emit(node.op, (own, merge_streams(kv, batch), *lists), **node.attrs)))


def _gemm(of: Several, node: Node, inputs: Sequence[int]) -> tuple[int, ...]:
    """Add groups, or add rows if all sequences multiply one matrix."""
    work, attrs, (a, b, *bias) = of.work, node.attrs, inputs
    of.shared(node, *bias)
    groups = attrs["groups"]
    each = [i for i in bias if len(work.shape(i)) == 2]  # one bias row per group
    most = max(of.shape(a)[0], of.shape(b)[0], groups)
    if most == 1 and b not in of.lifted and not attrs["trans_a"]:
        _, _, rows, k = work.shape(a)
        bias = [work.reshape(i, work.shape(i)[-1:]) for i in bias]
        [product] = work.emit("gemm", (work.reshape(a, (1, of.count * rows, k)), b, *bias), **attrs)
        return (work.reshape(product, (of.count, 1, rows, work.shape(product)[2])),)
    a, b = (_all_groups(of, i, most) if i in of.lifted else i for i in (a, b))
    if groups == most:
        bias = [work.concat((i,) * of.count, 0) if i in each else i for i in bias]
        return (of.apart(work.emit("gemm", (a, b, *bias), **{**attrs, "groups": of.count * most})[0]),)
    product = work.gemm(a, b, trans_a=attrs["trans_a"], trans_b=attrs["trans_b"], groups=of.count * most)
    _, m, n = work.shape(product)
    apart = work.reshape(product, (of.count, most // groups, groups, m, n))
    total = work.reshape(work.reduce(apart, "sum", (1,)), (of.count, groups, m, n))
    for i in bias:
        total = work.add(total, work.reshape(i, (groups, 1, n)) if i in each else i)
    return (work.unary(total, attrs["activation"]),)


def _all_groups(of: Several, i: int, most: int) -> int:
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
        "reshape": _axes(shape=_sizes),
        "broadcast": _axes(shape=_sizes),
        "permute": _axes(perm=lambda of, perm: (0, *_later(of, perm))),
        "slice": _axes(starts=_from(0), stops=_sizes),
        "pad": _axes(before=_from(0), after=_from(0)),
        "reduce": _axes(axes=_later),
        "concat": _one_axis,
        "flip": _one_axis,
        "gemm": _gemm,
        "gather_rows": _lookup,
        "recurrent": _recurrent,
        "cell": _cell,
        "linear_scan": _linear_scan,
        "rotate_scan": _rotate_scan,
        "edge_attend": _edge_attend,
        "rope": _rows(),
        "gumbel": _rows(of_each=2),
        **dict.fromkeys(("softmax", "entmax", "keep_largest", "norm"), _rows()),
        **dict.fromkeys(("unfold", "fold", "pool_max", "pool_sum", "pool_spread"), _rows()),
    }
)
"""Operation → its rule for several sequences."""


def runs_side_by_side(graph: Graph) -> bool:
    """Return whether `side_by_side` supports a graph of fixed shape whose inputs are not empty."""
    try:
        side_by_side(graph, 2)
    except UnsupportedError:
        return False
    return all(prod(graph.tensors[i].shape) for i in graph.inputs)
