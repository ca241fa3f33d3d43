"""Where the time of a token goes: GPU timestamps around the dispatches of each kind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.kernels.gpu.dispatch import Rows
from volumetric.runtime.gpu.commands import encode_calls
from volumetric.runtime.gpu.context import Call, GpuContext

if TYPE_CHECKING:
    from volumetric.runtime.gpu.executable import GpuExecutable
    from volumetric.runtime.gpu.state import GpuState


_WARM_SECONDS = 0.3


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
    executable: GpuExecutable, states: Sequence[GpuState], part: str = "whole", rows: int = 1, *, repeats: int = 20
) -> list[KernelTime]:
    """Time each kind of dispatch of one call alone, and the whole call, under the label ``"all"``.

    Run in isolation, kinds add up to more than the whole. The contents of the states are overwritten.

    Parameters
    ----------
    part : ``"whole"`` or ``"body"``, which is what runs for rows without an output
    rows : rows of each state, at position 0 for more than one, else at the states' positions

    Raises
    ------
    UnsupportedError : the GPU has no timestamps
    """
    with executable.lock:
        positions = [state.position for state in states]
        if rows > 1:
            for state in states:
                state.trim(0)
        try:
            counted, _ = executable.place_rows(states, [rows] * len(states))
            return _times(executable, part, counted, repeats)
        finally:
            for state, position in zip(states, positions, strict=True):
                state.advance(position - state.position)


def _times(executable: GpuExecutable, part: str, rows: Rows, repeats: int) -> list[KernelTime]:
    limit = executable.context.caps.max_groups
    calls = [call for call in executable.recordings.calls(part, rows) if call.grid.size(rows, limit)[1]]
    kinds: dict[str, list[Call]] = {}
    for call in calls:
        kinds.setdefault(call.label, []).append(call)
    kinds["all"] = list(calls)
    seconds = passes_seconds(executable.context, list(kinds.values()), rows, repeats)
    return [
        KernelTime(label=label, count=len(same), seconds=best)
        for (label, same), best in zip(kinds.items(), seconds, strict=True)
    ]


def passes_seconds(context: GpuContext, passes: Sequence[Sequence[Call]], rows: Rows, repeats: int) -> list[float]:
    """GPU seconds of a compute pass over each list of calls, the best of `repeats`.

    Each repetition runs all passes in one submission, after others that are not counted: a GPU that was idle takes a
    while to raise its clocks, and what is compared must run at the same ones.

    Raises
    ------
    UnsupportedError : the GPU has no timestamps
    """
    if "timestamp-query" not in context.features:
        raise UnsupportedError("this GPU has no timestamps", hint="measure whole tokens instead")
    count = 2 * len(passes)
    queries = context.device.create_query_set(type="timestamp", count=count)
    # a multiple of 256 bytes, as query results need
    found = context.device.create_buffer(size=-(-8 * count // 256) * 256, usage=context.query_usage)
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
            encoder.resolve_query_set(queries, 0, count, found, 0)
            context.queue.submit([encoder.finish()])
        start, end = context.read(found, 8 * count).view(np.uint64).reshape(-1, 2).T
        best = np.minimum(best, (end - start).astype(np.float64))
    found.destroy()
    return (best * context.timestamp_seconds).tolist()
