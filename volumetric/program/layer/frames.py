"""Frames that an edge with a lag reads, on a canvas with a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array
from volumetric.program.layer.edge import Edge


@dataclass(frozen=True, eq=False, slots=True)
class EdgePart:
    """A part of an edge: some of its positions attend to some of its rows.

    Attributes
    ----------
    written, read : indices into the positions that the edge writes, and into the rows that it reads, int64
    share : share of the result at these positions; shares of the parts that write a position sum to 1
    """

    written: Array
    read: Array
    share: float


def parts_of(edge: Edge, written: Array, read: Array, periods: tuple[int, int]) -> tuple[EdgePart, ...]:
    """Return the pairs of frames of an edge with a lag.

    Frame f of a region with period p is at world time f · p. A written frame f reads time ``(f - lag) · p`` with the
    period p of the region written. If the region read has no frame at that time, `fill` applies.

    Parameters
    ----------
    written, read : frame of each position, int64
    periods : period of the region written, and of the region read
    """
    lag = edge.lag or 0
    times = {int(frame) * periods[1]: np.flatnonzero(read == frame) for frame in np.unique(read)}
    parts: list[EdgePart] = []
    for frame in np.unique(written).tolist():
        rows = np.flatnonzero(written == frame)
        sources = fill_frames(edge.fill, edge.order, (frame - lag) * periods[0], sorted(times))
        parts += [EdgePart(_frozen_array(rows), _frozen_array(times[time]), share) for time, share in sources]
    return tuple(parts)


def fill_frames(fill: str, order: int, target: int, times: list[int]) -> list[tuple[int, float]]:
    """Return the times to read for a target time, each with its share; `times` are the existing ones, ascending."""
    if target in times:
        return [(target, 1.0)]
    before, after = [time for time in times if time < target], [time for time in times if time > target]
    if fill == "drop" or (fill == "hold" and not before):
        return []
    if fill == "hold":
        return [(before[-1], 1.0)]
    if order > 1:
        near = sorted(times, key=lambda time: abs(time - target))[: order + 1]
        weights = np.array([float(abs(time - target)) ** -order for time in near])
        return list(zip(near, (weights / weights.sum()).tolist(), strict=True))
    if not before or not after:
        return [((before or after)[-1 if before else 0], 1.0)]
    span = after[0] - before[-1]
    return [(before[-1], (after[0] - target) / span), (after[0], (target - before[-1]) / span)]


def _frozen_array(array: Array) -> Array:
    array.setflags(write=False)
    return array
