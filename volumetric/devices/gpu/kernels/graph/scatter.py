"""Sums of rows by id, without atomics and so reproducible: ids are sorted, and rows of equal ids are summed.

The work is n log n in the number of ids; the minimum is writing the result, whose rows may be mostly 0.
"""

from __future__ import annotations

from math import isqrt

from volumetric.devices.gpu.kernels.dispatch import Caps, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    launch,
    one_each,
    result,
    scratch,
    single_launch,
    source,
    workgroup_size,
)
from volumetric.devices.gpu.kernels.graph.strided_copies import fill

_WAYS = 16
"""Maximum sorted runs that one pass merges; an id has an invocation for each of them."""
_COLUMNS = 4
"""Maximum columns that one invocation sums."""
_SHORTEST = 64
"""Maximum rows that one invocation sums, or as many as are needed to have no more partial sums than rows in each."""


def scatter_rows(request: LoweringRequest) -> LoweredNode:
    """Sums of rows by id, in the order of the ids; for many rows, sums of partial sums."""
    (count, width), caps = request.inputs[0], request.caps
    zero = fill(request.out_size, caps, result())
    if count * width == 0:
        return single_launch(zero)
    sorting = _sort_launches(count, caps)
    order = scratch((len(sorting) - 1) % 2)
    length = max(_SHORTEST, power_of_two(isqrt(count)))
    blocks = ceil_div(count, length)
    workgroup = min(128, caps.max_workgroup)
    each = min(_COLUMNS, power_of_two(ceil_div(width, workgroup)))
    columns = ceil_div(width, workgroup * each)
    sums = launch(
        "sum_alike",
        count * columns,
        {"g": source(0), "sorted": order, "parts": scratch(2), "y": result()},
        (count, width, columns, length, request.outputs[0][0]),
        constants={"EACH": each},
        workgroup=workgroup,
    )
    columns = ceil_div(width, workgroup)
    joins = launch(
        "join_alike",
        (blocks - 1) * columns,
        {"sorted": order, "parts": scratch(2), "y": result()},
        (blocks, width, columns, length, request.outputs[0][0]),
        workgroup=workgroup,
    )
    launches = (zero, *sorting, sums, *([joins] if blocks > 1 else []))
    return LoweredNode(launches=launches, scratch=(8 * count, 8 * count, 8 * blocks * width))


def _sort_launches(count: int, caps: Caps) -> list[KernelLaunch]:
    """Return the launches that sort pairs of an id and its number, alternating between two scratch buffers."""
    run = workgroup_size(caps)
    buffers: dict[str, BufferRef] = {"ids": source(1), "sorted": scratch(0)}
    launches = [launch("sort_ids", ceil_div(count, run), buffers, (count,), workgroup=run)]
    while run < count:
        now = len(launches) % 2
        buffers = {"runs": scratch(1 - now), "sorted": scratch(now)}
        dims = (count, run, run.bit_length())
        ways = min(_WAYS, power_of_two(ceil_div(count, run)))
        launches.append(one_each("merge_ids", count * ways, caps, buffers, dims, constants={"WAYS": ways}))
        run *= ways
    return launches
