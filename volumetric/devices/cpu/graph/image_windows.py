"""Steps of operations on the windows of images."""

from __future__ import annotations

from typing import Any

from volumetric.base._typing import Shape
from volumetric.base.errors import UnsupportedError
from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.conv_taps import WIDEST_STRIDE
from volumetric.devices.cpu.kernels.graph.pool_lines import FEWEST
from volumetric.devices.cpu.kernels.graph.pools import LONG, POOL_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.windows import WINDOW_ARGUMENTS
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.ops import Node


def _table(builder: StepBuilder, node: Node, sizes: Shape) -> int:
    """Return the window table of a node; missing axes come first and have one element.

    Trailing axes of one element are moved there, too: neighbours in memory are then neighbours on the last axis.
    """
    axes = len(sizes)
    while axes > 1 and sizes[axes - 1] == node.attrs["kernel"][axes - 1] == node.attrs["counts"][axes - 1] == 1:
        axes -= 1
    missing = 3 - axes
    fields = {"sizes": sizes[:axes]}
    fields |= {name: node.attrs[name][:axes] for name in ("kernel", "stride", "dilation", "before", "counts")}
    return builder.table([n for name, own in fields.items() for n in (*[0 if name == "before" else 1] * missing, *own)])


@rule("unfold", "fold")
def windows(builder: StepBuilder, node: Node) -> None:
    """Copy windows out of images, or sum them back."""
    [x], [y] = node.inputs, node.outputs
    image = builder.shape(x if node.op == "unfold" else y)
    columns = y if node.op == "unfold" else x
    if builder.tensor(columns).size == 0:
        raise UnsupportedError(f"{node.op} at {node.where} has no windows", hint="the reference device runs it")
    arguments: dict[str, Any] = {
        "reads": {"x": x},
        "images": image[0] * image[1],
        "table": _table(builder, node, image[2:]),
    }
    builder.add(
        node.op, WINDOW_ARGUMENTS, writes={"y": y}, work=move_nanoseconds(2 * builder.sizes[columns]), **arguments
    )


@rule("pool_max", "pool_max_grad", "pool_sum", "pool_spread")
def pools(builder: StepBuilder, node: Node) -> None:
    """Pool windows, or add pooled gradients back to the image."""
    x, *taps = node.inputs
    y, *more = node.outputs
    image = x if node.op in ("pool_max", "pool_sum") else y
    pooled = y if image == x else x
    lines = node.attrs["stride"][-1] <= WIDEST_STRIDE and node.attrs["counts"][-1] >= FEWEST
    elements_read = builder.tensor(pooled).size * (1 if node.op == "pool_max_grad" and not lines else _taps(node))
    arguments: dict[str, Any] = {"reads": {"x": x}, "writes": {"y": y}}
    used_taps = [i for i in more if i in builder.graph.outputs or list(builder.graph.readers(i))]
    arguments["writes" if more else "reads"]["tap"] = (*taps, *used_taps, None)[0]
    arguments |= {"images": builder.shape(image)[0] * builder.shape(image)[1]}
    arguments |= {"table": _table(builder, node, builder.shape(image)[2:])}
    cost = 0.15 if lines or max(node.attrs["kernel"]) >= LONG else 0.8
    work = move_nanoseconds(builder.sizes[image], builder.sizes[pooled]) + cost * elements_read
    builder.add(node.op, POOL_ARGUMENTS, work=work, **arguments)


def _taps(node: Node) -> int:
    """Number of elements of a window."""
    count = 1
    for taps in node.attrs["kernel"]:
        count *= taps
    return count
