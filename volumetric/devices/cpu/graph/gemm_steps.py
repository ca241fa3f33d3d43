"""Steps of matrix products: the choice of kernel, and merging groups into rows where possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from volumetric.devices.cpu.graph.gemm_sums import terms_of
from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.gemm import GEMM_ARGUMENTS, gemm_scratch
from volumetric.devices.cpu.kernels.graph.gemm_microkernels import dot_shape, panel_shape
from volumetric.devices.cpu.kernels.graph.gemm_nt import DOTS_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.gemv import STRIPS_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.unary import FUNCTIONS
from volumetric.devices.cpu.step_builder import Operation, StepBuilder, TensorAddress
from volumetric.graph.ops import Node

_DOT_ROWS = 8
"""Rows up to which a right side that is contiguous along k is read in place."""
_DOT_COLUMNS = 16
"""The same for a narrow right side, which would fill only part of a panel."""
_DOT_DEPTH = 64
"""k from which spreading sums over lanes pays."""
_STRIP_ROWS = 2
"""Rows up to which a right side with contiguous rows is read row by row."""
_STRIP_COLUMNS = 64
"""Columns from which that pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GemmShape:
    m: int
    n: int
    k: int
    ga: int
    gb: int
    gc: int
    trans_a: bool
    trans_b: bool
    biases: bool

    @property
    def groups(self) -> int:
        """Number of matrix products: that of the operand with the most groups."""
        return max(self.ga, self.gb, self.gc)


def _merge_groups(p: _GemmShape) -> _GemmShape:
    """Merge groups that follow one another into rows, or into a longer sum, of a single group."""
    if p.gb == 1 and p.ga == p.gc and not p.trans_a and not p.biases:
        return replace(p, m=p.m * p.ga, ga=1, gc=1)
    if p.gc == 1 and p.ga == p.gb and p.trans_a and not p.trans_b:
        return replace(p, k=p.k * p.ga, ga=1, gb=1)
    return p


@rule("gemm", "gemm_sum")
def gemm(builder: StepBuilder, node: Node) -> None:
    """Matrix product of groups, or a sum of them, see `gemm_sums`."""
    summed = node.op == "gemm_sum"
    terms = terms_of(node) if summed else []
    a, b, *bias = node.inputs[:2] if summed else node.inputs
    ga, rows, columns = builder.shape(a)
    gb = builder.shape(b)[0]
    gc, m, n = builder.shape(node.outputs[0])
    trans_a, trans_b = bool(node.attrs["trans_a"]), bool(node.attrs["trans_b"])
    k = rows if trans_a else columns
    if ga == 0 or gb == 0:  # nothing to sum: the other groups do not matter
        ga = gb = 1
        k = 0
    biases = bool(bias) and len(builder.shape(bias[0])) == 2  # one for each group
    p = _GemmShape(m=m, n=n, k=k, ga=ga, gb=gb, gc=gc, trans_a=trans_a, trans_b=trans_b, biases=biases)
    p = p if summed else _merge_groups(p)
    activation = FUNCTIONS.index(node.attrs["activation"])
    arguments: dict[str, Any] = {
        "a": TensorAddress(a),
        "b": TensorAddress(b),
        "bias": TensorAddress(bias[0]) if bias else 0,
        "c": TensorAddress(node.outputs[0]),
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "ga": p.ga,
        "gb": p.gb,
        "gc": p.gc,
        "groups": len(terms) * gc if summed else p.groups,
        "finish": Operation("finish", (activation,)) if activation else 0,
        "bias_group": 4 * n if biases else 0,
    }
    work = 2 * p.m * p.n * p.k * arguments["groups"] / 90 + move_nanoseconds(
        *(builder.sizes[i] for i in (*node.inputs, *node.outputs))
    )
    few = not summed and (p.m <= _DOT_ROWS or p.n <= _DOT_COLUMNS or builder.batch_invariant)
    if p.trans_b and not p.trans_a and p.k >= _DOT_DEPTH and few:
        shape = (1, 8) if p.m == 1 and p.n >= 8 and dot_shape()[0] > 1 else dot_shape()
        builder.add("dots", DOTS_ARGUMENTS, *shape, reads=node.inputs, writes=node.outputs, work=work, **arguments)
        return
    if (
        not summed
        and not builder.batch_invariant
        and p.m <= _STRIP_ROWS
        and not p.trans_b
        and p.groups == 1
        and p.n >= _STRIP_COLUMNS
    ):
        places: dict[str, Any] = {name: arguments[name] for name in ("a", "b", "bias", "c", "m", "n", "k", "finish")}
        places |= {"a_row": 4 if p.trans_a else 4 * p.k, "a_k": 4 * p.m if p.trans_a else 4}
        builder.add("strips", STRIPS_ARGUMENTS, reads=node.inputs, writes=node.outputs, work=work, **places)
        return
    tall, wide = panel_shape()
    builder.want_scratch(gemm_scratch(wide))
    more: dict[str, Any] = {"a_group": 4 * p.m * p.k, "a_row": 4 if p.trans_a else 4 * p.k}
    more |= {"a_k": 4 * p.m if p.trans_a else 4, "b_group": 4 * p.n * p.k}
    more |= {"b_k": 4 if p.trans_b else 4 * p.n, "b_column": 4 * p.k if p.trans_b else 4}
    words = [word for term in terms for word in (*term.operands, *(term.guard or (-1, 0))[:2])]
    more["many"] = builder.table(words) if summed else 0
    builder.add(
        "gemm", GEMM_ARGUMENTS, tall, wide, reads=node.inputs, writes=node.outputs, work=work, **arguments, **more
    )
