"""Predicates of nodes: which nodes can be skipped if nothing fires, and which can compute a part of their result only.

A predicate divides a result into equal consecutive parts. A node that maps each part of its input to the same part of
its result can skip unread parts; a node that reads across parts needs the whole input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from volumetric.base._typing import Shape
from volumetric.graph.ops import Node


class Predicate(NamedTuple):
    """A predicate: tells which parts of a result nobody reads.

    Attributes
    ----------
    tensor : ``[rows, columns]``
    column : the result is read unless this column is 0 in all rows; with several parts, the column of the first part
    parts : equal consecutive parts of the result, one column each; devices may skip each unread part, or only groups of
        parts that are all unread, or nothing
    zeros : skipped parts are still read, as zeros; they contribute nothing to results or gradients
    """

    tensor: int
    column: int
    parts: int = 1
    zeros: bool = False


_BY_ELEMENT = frozenset({"unary", "unary_grad", "binary", "broadcast", "reshape"})
_BY_ROW = frozenset({"softmax", "entmax", "keep_largest", "norm", "linear_scan"})
"""Operations whose first axis is rows that are independent; all rows read operands without that axis."""


def predicated_nodes(nodes: Sequence[Node], predicate: Predicate, shape: Callable[[int], Shape]) -> list[Node]:
    """Return the nodes, with `predicate` on those that it can skip.

    Parameters
    ----------
    nodes : in execution order; nodes outside select what they read of them by the same columns
    shape : returns the shape of a tensor
    """
    whole: set[int] = set()  # tensors that are read across parts
    rewritten: list[Node] = []
    for node in reversed(nodes):
        parted = whole.isdisjoint(node.outputs) and not any(prod(shape(i)) % predicate.parts for i in node.outputs)
        own = _aligned_inputs(node, predicate.parts, shape) if parted else ()
        whole.update(i for i in node.inputs if i not in own)
        rewritten.append(replace(node, predicate=predicate) if parted else node)
    return rewritten[::-1]


def _aligned_inputs(node: Node, parts: int, shape: Callable[[int], Shape]) -> Collection[int]:
    """Return the inputs of which each part of the result reads only the same part."""
    if parts == 1:
        return node.inputs
    output_shape, attrs = shape(node.outputs[0]), node.attrs
    count = _count_part_axes(output_shape, parts)
    if node.op == "reshape":
        return node.inputs
    if node.op in _BY_ELEMENT:
        return [i for i in node.inputs if _has_part_axes(shape(i), output_shape, count)]
    if node.op in _BY_ROW:
        rows = [i for i in node.inputs if len(shape(i)) > 1 and shape(i)[0] == output_shape[0]]
        return rows if output_shape[0] % parts == 0 else ()
    if node.op == "gemm":
        return _aligned_gemm_inputs(node, parts, shape)
    if node.op == "permute":
        return node.inputs if attrs["perm"][:count] == tuple(range(count)) else ()
    if node.op in ("slice", "pad", "concat"):  # the axes of the parts stay as they are
        return [i for i in node.inputs if shape(i)[:count] == output_shape[:count]] if count < len(output_shape) else ()
    if node.op == "reduce":
        return node.inputs if shape(node.inputs[0])[:count] == output_shape[:count] else ()
    return ()


def _count_part_axes(shape: Shape, parts: int) -> int:
    """Return how many leading axes identify a part."""
    return next(n for n in range(len(shape) + 1) if prod(shape[:n]) % parts == 0)


def _has_part_axes(own: Shape, output_shape: Shape, count: int) -> bool:
    """Return whether an operand, which may broadcast, has the axes that identify a part."""
    return len(own) == len(output_shape) and own[:count] == output_shape[:count]


def _aligned_gemm_inputs(node: Node, parts: int, shape: Callable[[int], Shape]) -> Collection[int]:
    a, b, *bias = node.inputs
    groups, rows, _ = shape(node.outputs[0])
    if groups % parts == 0:
        own = [i for i in (a, b) if shape(i)[0] == groups] if max(shape(a)[0], shape(b)[0]) == groups else []
        return own + [i for i in bias if shape(i)[:-1] == (groups,)]
    alone = groups == shape(a)[0] == 1 and rows % parts == 0 and not node.attrs["trans_a"]
    return () if not alone or a in (b, *bias) else (a,)
