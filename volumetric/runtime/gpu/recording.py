"""Recordings: what a GPU is to do, as plain data: kernels by name, buffers by name, grids, and small arguments.

They are made without a GPU and bound to its pipelines and buffers last, so a recording can outlive the buffers, or be
written to a file and replayed by another host that has the same shaders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from volumetric.errors import CheckpointError
from volumetric.kernels.gpu.dispatch import Dispatch, Grid

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One dispatch of a recording.

    Attributes
    ----------
    buffers : the shader's names of its buffers → their names in the recording; those left out are not used
    dims : contents of the shader's uniform ``dims``, words of 32 bits: ints and floats; empty where it has none
    """

    dispatch: Dispatch
    buffers: Mapping[str, str]
    dims: tuple[int | float, ...] = ()


def entry(dispatch: Dispatch, buffers: Mapping[str, str], *, control: str | None = None) -> Entry:
    """One dispatch; with `control`, a control block, where its kernel reads positions or row counts."""
    return Entry(dispatch=dispatch, buffers=dict(buffers) if control is None else {**buffers, "ctl": control})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Dispatches in order.

    Attributes
    ----------
    sizes : name of a buffer → its bytes
    """

    entries: tuple[Entry, ...]
    sizes: Mapping[str, int]


def recording(entries: Sequence[Entry], buffers: Mapping[str, Any]) -> Recording:
    """Return the recording of `entries` over `buffers`, those of them that they name."""
    named = dict.fromkeys(name for entry in entries for name in entry.buffers.values())
    return Recording(entries=tuple(entries), sizes=MappingProxyType({name: buffers[name].size for name in named}))


def to_data(made: Recording) -> dict[str, Any]:
    """Return a recording as what JSON can hold."""
    return {"version": VERSION, "sizes": dict(made.sizes), "entries": [_entry_data(entry) for entry in made.entries]}


def from_data(data: Mapping[str, Any]) -> Recording:
    """Return the recording of which `to_data` made `data`.

    Raises
    ------
    CheckpointError : it is of another version, or damaged
    """
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"the recording is of version {data.get('version')!r}, this is for {VERSION}", hint="record it again"
        )
    try:
        made = Recording(
            entries=tuple(_entry(one) for one in data["entries"]),
            sizes=MappingProxyType({str(name): int(size) for name, size in data["sizes"].items()}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the recording is damaged: {error!r}", hint="record it again") from error
    missing = {name for entry in made.entries for name in entry.buffers.values()} - made.sizes.keys()
    if missing:
        raise CheckpointError(f"the recording has no size of {min(missing)!r}", hint="record it again")
    return made


def _entry_data(entry: Entry) -> dict[str, Any]:
    dispatch, grid = entry.dispatch, entry.dispatch.grid
    return {
        "kernel": dispatch.kernel,
        "preludes": list(dispatch.preludes),
        "constants": dict(dispatch.constants),
        "args": list(dispatch.args),
        "grid": asdict(grid),
        "buffers": dict(entry.buffers),
        "dims": list(entry.dims),
    }


def _entry(data: Mapping[str, Any]) -> Entry:
    dispatch = Dispatch(
        kernel=str(data["kernel"]),
        grid=Grid(**data["grid"]),
        constants=MappingProxyType(dict(data["constants"])),
        preludes=tuple(data["preludes"]),
        args=tuple(data["args"]),
    )
    return Entry(dispatch=dispatch, buffers=MappingProxyType(dict(data["buffers"])), dims=tuple(data["dims"]))
