"""Recordings: GPU work as plain data: kernels by name, buffers by name, grids, and small arguments.

They are created without a GPU and bound to its pipelines and buffers last, so a recording can outlive the buffers, and
another host with the same shaders can replay it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from volumetric.devices.gpu.kernels.dispatch import Dispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDispatch:
    """One dispatch of a recording.

    Attributes
    ----------
    buffers : the shader's names of its buffers → their names in the recording; omitted ones are unused
    dims : contents of the shader's uniform ``dims``, words of 32 bits: ints and floats; empty if it has none
    """

    dispatch: Dispatch
    buffers: Mapping[str, str]
    dims: tuple[int | float, ...] = ()


def entry(dispatch: Dispatch, buffers: Mapping[str, str], *, control: str | None = None) -> RecordedDispatch:
    """One dispatch; with `control`, a control block, if its kernel reads positions or row counts."""
    return RecordedDispatch(
        dispatch=dispatch, buffers=dict(buffers) if control is None else {**buffers, "ctl": control}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecording:
    """Dispatches in order.

    Attributes
    ----------
    sizes : name of a buffer → its bytes
    """

    entries: tuple[RecordedDispatch, ...]
    sizes: Mapping[str, int]


def recording(entries: Sequence[RecordedDispatch], buffers: Mapping[str, Any]) -> GpuRecording:
    """Return the recording of `entries` over those of `buffers` that they name."""
    named = dict.fromkeys(name for entry in entries for name in entry.buffers.values())
    return GpuRecording(entries=tuple(entries), sizes=MappingProxyType({name: buffers[name].size for name in named}))
