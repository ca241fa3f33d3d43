"""Masks as genes: tiles, blocks and single pairs, and their adjustment when regions change size."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from volumetric.evolution.programs.edge_genes import one_of
from volumetric.evolution.programs.program_change import Mark, MutatedProgram, edge_replaced
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Bits, Mask, Rects, Tile
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.region import Region

MOST_PAIRS = 4096
"""Maximum pairs of positions for a new mask of single pairs, whose text has a digit for each."""
_MOST_BLOCKS = 8
_Shape = tuple[int, int]


def change_mask(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Add a mask that hides nothing yet to an edge, or change or remove its mask."""
    able = [at for at, edge in enumerate(program.edges) if by_positions(program.canvas.regions[edge.reads])]
    if not able:
        return None
    at = one_of(able, rng)
    edge = program.edges[at]
    mask = new_mask(program, edge, rng) if edge.mask is None else changed_mask(program, edge, rng)
    return None if mask == edge.mask else MutatedProgram(program=edge_replaced(program, at, replace(edge, mask=mask)))


def new_mask(program: Program, edge: Edge, rng: np.random.Generator) -> Mask:
    """Return a mask that hides nothing: a block of all pairs, or all pairs one by one."""
    shape = pairs_of(program, edge)
    if rng.random() < 0.5 or math.prod(shape) > MOST_PAIRS:
        return Rects([(0, shape[0], 0, shape[1])])
    return Bits(np.ones(shape))


def changed_mask(program: Program, edge: Edge, rng: np.random.Generator) -> Mask | None:
    """Return a mask with a side, block or some pairs changed; None removes it."""
    mask, shape = edge.mask, pairs_of(program, edge)
    if rng.random() < 0.25 or not isinstance(mask, Tile | Rects | Bits):
        return None
    if isinstance(mask, Tile):
        sides = [*mask.shape]
        at = int(rng.integers(len(sides)))
        sides[at] = int(np.clip(sides[at] + rng.choice((-1, 1)), 1, program.canvas.shape[at]))
        return Tile(tuple(sides))
    if isinstance(mask, Bits):
        bits = mask.array.copy()
        count = int(rng.integers(1, max(2, bits.size // 16)))
        bits.flat[rng.choice(bits.size, count, replace=False)] ^= True
        return Bits(bits)
    blocks, choice = [*mask.rects], rng.random()
    at = int(rng.integers(len(blocks)))
    if choice < 0.25 and len(blocks) < _MOST_BLOCKS:
        return Rects([*blocks, _block(shape, rng)])
    if choice < 0.5 and len(blocks) > 1:
        return Rects(blocks[:at] + blocks[at + 1 :])
    ends = [*blocks[at]]
    side = int(rng.integers(4))
    ends[side] = int(np.clip(ends[side] + rng.choice((-1, 1)), 0, shape[side // 2]))
    w0, w1, r0, r1 = ends
    blocks[at] = (w0, w1, r0, r1) if w0 < w1 and r0 < r1 else blocks[at]
    return Rects(blocks)


def fit_masks(program: Program) -> Program:
    """Return a program whose masks of blocks and pairs fit the regions of their edges.

    Blocks are clipped at the end of a region, and empty blocks are removed; single pairs are clipped, and new positions
    read all and are read by all. Regions read through slots, or as a memory, have no positions: these masks are
    removed.
    """
    edges = tuple(_fit_mask(program, edge) for edge in program.edges)
    return program if edges == program.edges else replace(program, edges=edges)


def _fit_mask(program: Program, edge: Edge) -> Edge:
    mask, read = edge.mask, program.canvas.regions[edge.reads]
    if not isinstance(mask, Rects | Bits):
        return edge
    if not by_positions(read):
        return replace(edge, mask=None)
    written, positions_read = pairs_of(program, edge)
    if isinstance(mask, Rects):
        cut = [(w0, min(w1, written), r0, min(r1, positions_read)) for w0, w1, r0, r1 in mask.rects]
        cut = [block for block in cut if block[0] < block[1] and block[2] < block[3]]
        return edge if tuple(cut) == mask.rects else replace(edge, mask=Rects(cut) if cut else None)
    old = mask.array
    if old.shape == (written, positions_read):
        return edge
    bits = np.ones((written, positions_read), np.bool_)
    rows, columns = min(written, old.shape[0]), min(positions_read, old.shape[1])
    bits[:rows, :columns] = old[:rows, :columns]
    return replace(edge, mask=Bits(bits))


def by_positions(region: Region) -> bool:
    """Whether a region is read by position in any program."""
    return region.identity is None and region.carrier != "memory" and region.slots is None


def pairs_of(program: Program, edge: Edge) -> _Shape:
    """Return the numbers of positions that an edge writes and reads."""
    regions = program.canvas.regions
    return regions[edge.writes].size, regions[edge.reads].size


def _block(shape: _Shape, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Return a random block within a mask."""
    (w0, w1), (r0, r1) = (sorted(rng.choice(size + 1, 2, replace=False).tolist()) for size in shape)
    return w0, w1, r0, r1
