"""Steps of element-wise functions of one or two values that few networks have, except sums."""

from __future__ import annotations

from volumetric.devices.cpu.kernels.elements import BINARY_ARGUMENTS, UNARY_ARGUMENTS
from volumetric.devices.cpu.kernels.formula_kernels import code_of
from volumetric.devices.cpu.kernels.graph.elementwise import PAIRS
from volumetric.devices.cpu.kernels.graph.unary import FUNCTIONS
from volumetric.devices.cpu.rows.row_step_builder import RowStepBuilder
from volumetric.graph.ops import Node


def append_unary(builder: RowStepBuilder, node: Node) -> None:
    """A function of each element."""
    [x], y, code = node.inputs, node.outputs[0], code_of(node.attrs["name"], FUNCTIONS)
    arguments = {name: float(node.attrs[name]) for name in ("alpha", "beta")}
    builder.add_by_rows(
        "unary", UNARY_ARGUMENTS, node, code, over=node.inputs, input=x, output=y, width=builder.width(y), **arguments
    )


def append_binary(builder: RowStepBuilder, node: Node) -> None:
    """A function of pairs of elements."""
    (a, b), y, code = node.inputs, node.outputs[0], PAIRS.index(node.attrs["name"])
    builder.add_by_rows(
        "binary", BINARY_ARGUMENTS, node, code, over=node.inputs, a=a, b=b, output=y, width=builder.width(y)
    )
