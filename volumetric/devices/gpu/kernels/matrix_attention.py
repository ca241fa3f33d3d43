"""Attention of prompts on matrix units: halves are multiplied, scores and sums are float32.

A GPU without matrix units runs the same kernel with emulated fragments. What it does not take is left to `attend_rows`:
heads whose size is no multiple of 4, and those whose tiles exceed workgroup memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.kernels.dispatch import MATRIX_LANES, Caps, Dispatch, WorkgroupGrid, ceil_div

_PADDING = 2
"""Vectors by which a row of a tile is longer, so that fragments spread over banks."""
_BUFFERS = 8
"""Storage buffers of `attend_append` with halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTile:
    """A workgroup's share of `matrix_attend`: rows of a sequence in one query head.

    Attributes
    ----------
    rows : of scores and of the output
    positions : of a step
    fragments : of 16 rows, that a subgroup owns
    parts : subgroups that share these rows: each has a part of the positions, and then of the elements of the head
    hold : queries stay in registers, and leave their place in workgroup memory to keys and values
    """

    rows: int
    positions: int = 64
    fragments: int = 1
    parts: int = 2
    hold: bool = True

    @property
    def workgroup(self) -> int:
        """Invocations."""
        return MATRIX_LANES * self.parts * self.rows // (16 * self.fragments)

    def shared_bytes(self, head_dim: int) -> int:
        """Workgroup memory: tiles of queries, of keys or values and of weights; scores, factors, and reductions."""
        row = 4 * self.parts * ceil_div(ceil_div(head_dim, 16), self.parts) + _PADDING
        queries, weights = self.rows * row, self.rows * (self.positions // 4 + _PADDING)
        vectors = max(queries, self.positions * row + weights + (0 if self.hold else queries))
        return 8 * vectors + 4 * (self.rows * (self.positions + 1) + self.workgroup + 64)


TILES: dict[int, tuple[AttentionTile, ...]] = {
    64: (AttentionTile(rows=32), AttentionTile(rows=32, positions=32, parts=1)),
    128: (AttentionTile(rows=64, fragments=2, parts=4), AttentionTile(rows=32, positions=32, parts=1)),
    256: (
        AttentionTile(rows=32, parts=4),
        AttentionTile(rows=32, positions=32),
        AttentionTile(rows=16, positions=32),
    ),
}
"""Largest head → tiles on matrix units for one head, the best first; the first that fits is taken.

Measured on an H200: 512 rows of 32 heads of 128 take 25 µs, of 9 heads of 64 14 µs; `attend_rows` 132 and 44."""
_EMULATED = (
    AttentionTile(rows=32, parts=4, hold=False),
    AttentionTile(rows=16, parts=4, hold=False),
    AttentionTile(rows=16, positions=32, parts=2, hold=False),
    AttentionTile(rows=16, positions=16, parts=1, hold=False),
)
"""Without matrix units: many invocations with few rounds each. Emulated fragments are not held: they stay in memory."""


def choose_tiles(shapes: Iterable[AttentionShape], caps: Caps) -> dict[AttentionShape, AttentionTile] | None:
    """Tile of each shape, all with the same rows; None if a shape needs `attend_rows`."""
    listed = {shape: _first_fitting(shape, caps) for shape in shapes}
    fitting = {shape: tile for shape, tile in listed.items() if tile is not None}
    if not listed or len(fitting) < len(listed):
        return None
    rows = min(tile.rows for tile in fitting.values())
    return {shape: _with_rows(tile, rows) for shape, tile in fitting.items()}


def _with_rows(tile: AttentionTile, rows: int) -> AttentionTile:
    return replace(tile, rows=rows, fragments=tile.fragments if rows % (16 * tile.fragments) == 0 else 1)


def _first_fitting(shape: AttentionShape, caps: Caps) -> AttentionTile | None:
    if shape.head_dim % 4 or caps.max_storage_buffers < _BUFFERS:
        return None
    listed = next((tiles for size, tiles in TILES.items() if shape.head_dim <= size), ())
    for tile in listed if caps.matrix_units else _EMULATED:
        if tile.workgroup <= caps.max_workgroup and tile.shared_bytes(shape.head_dim) <= caps.max_shared:
            return tile
    return None


def rows(shape: AttentionShape, caps: Caps, tile: AttentionTile) -> Dispatch:
    """Attention of blocks of rows. Buffers: q and undo (of `append`), keys, values, tables, y, head_params, ctl."""
    constants = shape.constants() | shape.score_constants()
    constants |= {
        "WG": tile.workgroup,
        "LANES": MATRIX_LANES,
        "BM": tile.rows,
        "BATCH": tile.rows,
        "BK": tile.positions,
        "FM": tile.fragments,
        "WX": tile.parts,
        "HOLD": int(tile.hold),
        "SLOTS": max(tile.positions // shape.page, 1) if shape.state else 1,
        "NATIVE": caps.matrix_units,
        "CAUSAL": shape.causal,
    }
    return Dispatch(
        kernel="matrix_attend",
        grid=WorkgroupGrid(x=shape.heads, rows_each=1, over="blocks"),
        constants=constants,
        preludes=(*shape.preludes, "matrix/units" if caps.matrix_units else "matrix/emulated"),
    )
