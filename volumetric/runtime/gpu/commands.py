"""Encoding recorded calls with plain wgpu-py calls: the portable way to replay a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from volumetric.runtime.gpu.context import Call


def encode_pass(encoder: Any, calls: Iterable[Call], rows: int, limit: int) -> None:
    """Write one compute pass with all `calls`: separate passes would cost three times as much on the GPU."""
    compute = encoder.begin_compute_pass()
    for call in calls:
        compute.set_pipeline(call.pipeline)
        compute.set_bind_group(0, call.group)
        if call.immediates:
            # data_offset and data_size have no usable defaults in wgpu-py 0.32
            compute.set_immediates(0, call.immediates, 0, len(call.immediates))
        compute.dispatch_workgroups(*call.grid.size(rows, limit))
    compute.end()
