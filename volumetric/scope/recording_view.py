"""The view of one recording, or of two to compare, thinned to a limited number of bytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.observe.recording import Recording
from volumetric.observe.scene import Scene
from volumetric.scope.document import ScopeView
from volumetric.scope.scene_tables import recording_tables, scene_view

BUDGET: Final = 224 << 10
"""Default limit on the compressed bytes of all recordings of a view, for pages that are sent or stored."""
_PARTS: Final = ("node", "odd", "fired", "edge", "scale")


def recording_view(
    *recordings: Recording,
    names: Sequence[str] = (),
    budget: int | None = BUDGET,
    name: str = "network",
    label: str = "Network",
    more: Mapping[str, Any] | None = None,
) -> ScopeView:
    """Return the view of a recording, or of two recordings of the same scene, which the page compares tick by tick.

    Parameters
    ----------
    names : what the page calls each recording, such as ``("before", "after")``; default: their titles
    budget : maximum compressed bytes of the recordings. Of larger ones every n-th frame is shown, and the page says so.
        None: all frames, for pages that are served to this machine
    more : further data of the view, see `scene_view`

    Raises
    ------
    SpecError : there is no recording, or more than two; their scenes differ; `names` does not name each once; or not
        even one frame fits `budget`
    """
    if not 1 <= len(recordings) <= 2:
        raise SpecError(f"a view shows one recording, or compares two, got {len(recordings)}")
    if len(recordings) == 2:
        check_same_scene(recordings[0].scene, recordings[1].scene)
    names = names or _names(recordings)
    if len(names) != len(recordings) or len(set(names)) != len(names):
        raise SpecError(f"names: expected {len(recordings)} different names, got {', '.join(names)}")
    step = 1 if budget is None else _step(recordings, budget)
    tables = [frame_tables(recording, of, step=step) for recording, of in zip(recordings, names, strict=True)]
    return scene_view(recordings[0].scene, name=name, label=label, more={**(more or {}), "recordings": tables})


def frame_tables(recording: Recording, name: str = "", *, step: int = 1) -> dict[str, Any]:
    """Return `recording_tables` of every n-th frame, with `total` (frames of the whole recording) and `step`.

    `node` is ``[nodes, frames]`` and has differences from frame to frame, modulo 256, as `coding` says: fewer bytes.
    """
    tables = recording_tables(recording.select(slice(None, None, step)), name)
    node = np.array(tables["node"].T, order="C")
    node[:, 1:] -= tables["node"].T[:, :-1]
    return {**tables, "node": node, "coding": "differences", "total": len(recording), "step": step}


def check_same_scene(one: Scene, other: Scene) -> None:
    """Raise `SpecError` with the first difference between the scenes of two recordings."""
    if one == other:
        return
    if len(one.nodes) != len(other.nodes):
        raise _different(f"the first has {len(one.nodes):,} nodes, the second {len(other.nodes):,}")
    for i, (a, b) in enumerate(zip(one.nodes, other.nodes, strict=True)):
        for key in ("name", "group", "role", "size", "at"):
            if getattr(a, key) != getattr(b, key):
                raise _different(
                    f"{key} of node {i} is {getattr(a, key)!r} in the first, {getattr(b, key)!r} in the second"
                )
    if len(one.edges) != len(other.edges):
        raise _different(f"the first has {len(one.edges):,} edges, the second {len(other.edges):,}")
    for i, (c, d) in enumerate(zip(one.edges, other.edges, strict=True)):
        if c != d:
            ends = [
                f"{one.nodes[e.source].name} to {one.nodes[e.target].name}, {e.kind}, delay {e.delay}" for e in (c, d)
            ]
            raise _different(f"edge {i} is from {ends[0]} in the first, from {ends[1]} in the second")
    raise _different("their ports, populations or families differ")


def _different(what: str) -> SpecError:
    return SpecError(
        f"the recordings are of different scenes: {what}",
        hint="compare recordings of one network, for example with other weights, another dtype or another seed",
    )


def _names(recordings: Sequence[Recording]) -> tuple[str, ...]:
    titles = tuple(recording.meta.title for recording in recordings)
    if len(titles) == 1:
        return (titles[0] or "recording",)
    return titles if all(titles) and len(set(titles)) == len(titles) else ("first", "second")


def _step(recordings: Sequence[Recording], budget: int) -> int:
    """Return the smallest step between frames with which all recordings fit, within an eighth."""
    longest = max(map(len, recordings))

    def fits(step: int) -> bool:
        return sum(_packed_bytes(recording, step, budget) for recording in recordings) <= budget

    step = 1
    while not fits(step):
        if step > longest:
            raise SpecError(f"not even one frame fits {budget:,} bytes", hint="raise `budget`; None shows all frames")
        step = max(step + 1, step * 9 // 8)
    return step


def _packed_bytes(recording: Recording, step: int, most: int) -> int:
    """Return the compressed bytes of the frames that are shown; once they exceed `most`, only of a part of them."""
    tables = frame_tables(recording, step=step)
    total = 0
    for part in _PARTS:
        raw, packer = np.ascontiguousarray(tables[part]).tobytes(), zlib.compressobj(6)
        for at in range(0, len(raw), 1 << 20):
            total += len(packer.compress(raw[at : at + (1 << 20)]))
            if total > most:
                return total
        total += len(packer.flush())
    return total
