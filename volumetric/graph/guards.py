"""Guards: which nodes need not run where nothing fires, and of which a part of the result is enough.

A guard speaks of the equal parts of a result, one behind the other. What a node inside makes of one part alone may be
left out with it; what any part reads of another has to be whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from volumetric.base._typing import Shape
from volumetric.graph.ops import Node


class Guard(NamedTuple):
    """What tells that nobody reads a result, or parts of it.

    Attributes
    ----------
    tensor : ``[rows, columns]``
    column : the result is read where this column is not 0 in all rows; the first of those of parts
    parts : equal parts of the result, one behind the other, each with a column of its own; devices may leave out those
        that nobody reads, or what of several parts nobody reads, or nothing
    zeros : what is left out is read after all, as zeros: whoever does so makes nothing of it, and neither do gradients
    """

    tensor: int
    column: int
    parts: int = 1
    zeros: bool = False


_BY_ELEMENT = frozenset({"unary", "unary_grad", "binary", "broadcast", "reshape"})
_BY_ROW = frozenset({"softmax", "entmax", "keep_largest", "norm", "linear_scan"})
"""Their first axis counts rows, and a row depends on no other; operands without such an axis are read by all."""


def guarded_nodes(nodes: Sequence[Node], guard: Guard, shape: Callable[[int], Shape]) -> list[Node]:
    """Return nodes with a guard where it may leave them out.

    Parameters
    ----------
    nodes : one behind the other. What others read of them, they choose by the same columns
    shape : of a tensor
    """
    whole: set[int] = set()  # of which some part reads other parts
    rewritten: list[Node] = []
    for node in reversed(nodes):
        parted = whole.isdisjoint(node.outputs) and not any(prod(shape(i)) % guard.parts for i in node.outputs)
        own = _own(node, guard.parts, shape) if parted else ()
        whole.update(i for i in node.inputs if i not in own)
        rewritten.append(replace(node, guard=guard) if parted else node)
    return rewritten[::-1]


def _own(node: Node, parts: int, shape: Callable[[int], Shape]) -> Collection[int]:
    """Return the inputs of which a part of the result reads the same part alone."""
    if parts == 1:
        return node.inputs
    output_shape, attrs = shape(node.outputs[0]), node.attrs
    count = _leading(output_shape, parts)
    if node.op == "reshape":
        return node.inputs
    if node.op in _BY_ELEMENT:
        return [i for i in node.inputs if _lead(shape(i), output_shape, count)]
    if node.op in _BY_ROW:
        rows = [i for i in node.inputs if len(shape(i)) > 1 and shape(i)[0] == output_shape[0]]
        return rows if output_shape[0] % parts == 0 else ()
    if node.op == "gemm":
        return _of_product(node, parts, shape)
    if node.op == "permute":
        return node.inputs if attrs["perm"][:count] == tuple(range(count)) else ()
    if node.op in ("slice", "pad", "concat"):  # the axes of the parts stay as they are
        return [i for i in node.inputs if shape(i)[:count] == output_shape[:count]] if count < len(output_shape) else ()
    if node.op == "reduce":
        return node.inputs if shape(node.inputs[0])[:count] == output_shape[:count] else ()
    return ()


def _leading(shape: Shape, parts: int) -> int:
    """Return how many axes tell a part."""
    return next(n for n in range(len(shape) + 1) if prod(shape[:n]) % parts == 0)


def _lead(own: Shape, output_shape: Shape, count: int) -> bool:
    """Whether an operand that may be spread has the axes that tell a part."""
    return len(own) == len(output_shape) and own[:count] == output_shape[:count]


def _of_product(node: Node, parts: int, shape: Callable[[int], Shape]) -> Collection[int]:
    a, b, *bias = node.inputs
    groups, rows, _ = shape(node.outputs[0])
    if groups % parts == 0:
        own = [i for i in (a, b) if shape(i)[0] == groups] if max(shape(a)[0], shape(b)[0]) == groups else []
        return own + [i for i in bias if shape(i)[:-1] == (groups,)]
    alone = groups == shape(a)[0] == 1 and rows % parts == 0 and not node.attrs["trans_a"]
    return () if not alone or a in (b, *bias) else (a,)
