"""Time per kind of dispatch, by GPU timestamps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.gpu_commands import encode_calls
from volumetric.devices.gpu.gpu_context import BoundDispatch, GpuContext
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.run.step_times import WHOLE, StepTime

_WARM_SECONDS = 0.3


def call_times(context: GpuContext, calls: Sequence[BoundDispatch], rows: CallRows, repeats: int) -> list[StepTime]:
    """Time each kind of dispatch alone, the best of several, and all of them in one pass, under the label `WHOLE`.

    Run in isolation, kinds add up to more than the whole.

    Raises
    ------
    UnsupportedError : the GPU has no timestamps
    """
    limit = context.caps.max_groups
    kinds: dict[str, list[BoundDispatch]] = {}
    for call in calls:
        if call.grid.size(rows, limit)[1]:
            kinds.setdefault(call.label, []).append(call)
    kinds[WHOLE] = [call for call in calls if call.grid.size(rows, limit)[1]]
    seconds = passes_seconds(context, list(kinds.values()), rows, repeats)
    return [
        StepTime(label=label, count=len(same), seconds=best)
        for (label, same), best in zip(kinds.items(), seconds, strict=True)
    ]


def passes_seconds(
    context: GpuContext, passes: Sequence[Sequence[BoundDispatch]], rows: CallRows, repeats: int
) -> list[float]:
    """GPU seconds of a compute pass over each list of calls, the best of `repeats`.

    Each repetition runs all passes in one submission, after warm-up passes: an idle GPU needs a while to raise its
    clocks, and the compared passes must run at the same clocks.

    Raises
    ------
    UnsupportedError : the GPU has no timestamps
    """
    if not isinstance(context, OpenGpu) or "timestamp-query" not in context.features:
        raise UnsupportedError("this GPU has no timestamps", hint="measure whole tokens instead")
    count = 2 * len(passes)
    queries = context.device.create_query_set(type="timestamp", count=count)
    # a multiple of 256 bytes, as query results need
    timestamps = context.device.create_buffer(size=-(-8 * count // 256) * 256, usage=context.query_usage)
    best = np.full(len(passes), np.inf)
    warm_at = time.perf_counter() + _WARM_SECONDS
    done = 0
    while done < repeats:
        done += time.perf_counter() >= warm_at
        with context.guard("timing passes"):
            encoder = context.device.create_command_encoder()
            for at, calls in enumerate(passes):
                writes = {
                    "query_set": queries,
                    "beginning_of_pass_write_index": 2 * at,
                    "end_of_pass_write_index": 2 * at + 1,
                }
                compute = encoder.begin_compute_pass(timestamp_writes=writes)
                encode_calls(compute, calls, rows, context.caps.max_groups)
                compute.end()
            encoder.resolve_query_set(queries, 0, count, timestamps, 0)
            context.queue.submit([encoder.finish()])
        start, end = context.read(timestamps, 8 * count).view(np.uint64).reshape(-1, 2).T
        best = np.minimum(best, (end - start).astype(np.float64))
    timestamps.destroy()
    return (best * context.timestamp_seconds).tolist()
