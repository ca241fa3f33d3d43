"""Twins of regions: copies in a free place that nothing hears at first, so that what is new in them costs nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.lib.stride_tricks import sliding_window_view

from volumetric.evolution.programs.change import Change, Mark
from volumetric.evolution.programs.edges import one_of, with_edge
from volumetric.evolution.programs.masks import by_positions
from volumetric.layers.program.canvas import Canvas
from volumetric.layers.program.declared import Program
from volumetric.layers.program.region import Region

MOST_POSITIONS = 4096
"""A canvas that has no free place grows up to so many positions."""
Box = tuple[tuple[int, int], ...]


def twin_of(
    program: Program,
    model: str,
    mark: Mark,
    rng: np.random.Generator,
    *,
    as_region: Region | None = None,
    event: tuple[Any, ...] = (),
) -> Change | None:
    """Put a copy of a region, with copies of the edges that write it, into a free place; some region reads it.

    The copy begins with the parameters of its model. It is read through a gate and with nothing to say at first, so
    that the program computes what it did, where the region that reads it is deterministic; one such is preferred.

    Parameters
    ----------
    as_region : what the copy is declared as, its box apart; None: as the model
    event : what tells this copy from others of the model in its generation
    """
    regions = program.canvas.regions
    name = f"r{mark(('program region', model, *event))}"
    if name in regions:
        return None
    canvas, box = _free(program.canvas, regions[model].box, rng)
    if canvas is None or box is None:
        return None
    copy = regions[model] if as_region is None else as_region
    copies = {f"regions.{name}": f"regions.{model}"}
    edges = [*program.edges]
    for edge in program.edges:
        if edge.writes == model:
            own = f"e{mark(('program copy', edge.name, name))}"
            own_rows = edge.reads == model
            mask = edge.mask if not own_rows or by_positions(copy) else None
            edges.append(replace(edge, writes=name, reads=name if own_rows else edge.reads, mask=mask, name=own))
            copies[f"edges.{own}"] = f"edges.{edge.name}"
    grown = replace(canvas, regions={**regions, name: replace(copy, box=box)})
    quiet = [of for of, region in regions.items() if region.carrier == "deterministic"]
    made = replace(program, canvas=grown, edges=tuple(edges))
    read = with_edge(made, name, one_of(quiet or [*regions], rng), "cross", mark)
    return None if read is None else Change(program=read.program, copies=copies, closed=read.closed)


def _free(canvas: Canvas, box: Box, rng: np.random.Generator) -> tuple[Canvas | None, Box | None]:
    """Return a place for a box of this size, at the same frames; the canvas grows along space where it has none."""
    taken = np.zeros(canvas.shape, bool)
    for region in canvas.regions.values():
        taken[tuple(slice(*side) for side in region.box[1:])] = True
    size = tuple(high - low for low, high in box[1:])
    if all(a <= b for a, b in zip(size, canvas.shape, strict=True)):
        windows = sliding_window_view(taken, size).any(tuple(range(len(size), 2 * len(size))))
        spots = np.argwhere(~windows)
        if len(spots):
            spot = spots[int(rng.integers(len(spots)))].tolist()
            return canvas, (box[0], *((at, at + side) for at, side in zip(spot, size, strict=True)))
    shape = (canvas.shape[0] + size[0], *canvas.shape[1:])
    if canvas.frames * math.prod(shape) > MOST_POSITIONS:
        return None, None
    spot = (canvas.shape[0], *([0] * (len(size) - 1)))
    return replace(canvas, shape=shape), (box[0], *((at, at + side) for at, side in zip(spot, size, strict=True)))
