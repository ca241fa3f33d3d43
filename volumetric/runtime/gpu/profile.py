"""Where the time of a token goes: GPU timestamps around the dispatches of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.runtime.gpu.commands import encode_calls
from volumetric.runtime.gpu.context import Call, GpuContext
from volumetric.runtime.gpu.executable import GpuExecutable
from volumetric.runtime.gpu.state import GpuState


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """GPU time of all dispatches of one kind in a call.

    Attributes
    ----------
    label : kernel and sizes
    count : dispatches of this kind
    seconds : all of them in one pass, the best of several
    """

    label: str
    count: int
    seconds: float


def kernel_times(
    executable: GpuExecutable, state: GpuState, part: str = "decode", rows: int = 1, *, repeats: int = 20
) -> list[KernelTime]:
    """Time each kind of dispatch of one call alone, and the whole call, under the label ``"all"``.

    Run in isolation, kinds add up to more than the whole. The contents of the state are overwritten.

    Parameters
    ----------
    part : ``"decode"`` (one row through the whole plan), ``"body"`` or ``"tail"``
    rows : rows of the call, at position 0 for more than one, else at the state's position

    Raises
    ------
    UnsupportedError : the GPU has no timestamps
    """
    executable.write_control(executable.control, state.position if rows == 1 else 0, rows)
    calls = executable.calls(state, part, rows)
    kinds: dict[str, list[Call]] = {}
    for call in calls:
        kinds.setdefault(call.label, []).append(call)
    kinds["all"] = list(calls)
    return [
        KernelTime(label=label, count=len(same), seconds=pass_seconds(executable.context, same, rows, repeats))
        for label, same in kinds.items()
    ]


def pass_seconds(context: GpuContext, calls: Sequence[Call], rows: int, repeats: int) -> float:
    """GPU seconds of one compute pass over `calls`, the best of `repeats`.

    Raises
    ------
    UnsupportedError : the GPU has no timestamps
    """
    if "timestamp-query" not in context.features:
        raise UnsupportedError("this GPU has no timestamps", hint="measure whole tokens instead")
    device = context.device
    queries = device.create_query_set(type="timestamp", count=2)
    # 256 bytes: query results may only be resolved to such multiples
    found = device.create_buffer(size=256, usage=context.query_usage)
    times = []
    for _ in range(repeats):
        with context.guard("timing a pass"):
            encoder = device.create_command_encoder()
            writes = {"query_set": queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
            compute = encoder.begin_compute_pass(timestamp_writes=writes)
            encode_calls(compute, calls, rows, context.caps.max_groups)
            compute.end()
            encoder.resolve_query_set(queries, 0, 2, found, 0)
            context.queue.submit([encoder.finish()])
        start, end = context.read(found, 16).view(np.uint64)
        times.append(int(end) - int(start))
    found.destroy()
    return min(times) * context.timestamp_seconds
