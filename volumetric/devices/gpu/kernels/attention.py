"""Attention over a paged cache: append and rows for several rows of a sequence, split and combine for decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.kernels.dispatch import Caps, Constant, Dispatch, WorkgroupGrid, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.matmul import NORMS

PAGE = 32
"""Rows of a page: whole tiles of `rows`, and small enough that the unused part of a last page hardly counts."""
_APPEND_WORKGROUP = 256
_MOST_HEADS = 8
"""Query heads that a decoding workgroup keeps in registers; more would spill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """An attention layer.

    Attributes
    ----------
    heads, kv_heads, head_dim : sizes; `heads` is a multiple of `kv_heads`
    context : maximum positions of a sequence
    qk_norm : kind of the norm of heads, None for none
    own_gains : whether each head has a separate gain in that norm
    gains : whether that norm has gains
    temperature_scale, temperature_every : growth of queries with their position, see `layers.MultiHeadAttention`
    rotary : leading elements of a head that are rotated, 0 for none
    state : whether rows follow the cache's position; otherwise calls are independent
    half : whether the cache is float16
    together : rows of a call, if there is no state; 0: those of one sequence
    near : whether the control block may list the pages of a sequence; those of one window width, or without a window
    """

    heads: int
    kv_heads: int
    head_dim: int
    context: int
    scale: float
    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    chunk: int | None = None
    sinks: bool = False
    qk_norm: str | None = None
    own_gains: bool = False
    qk_norm_eps: float = 0.0
    qk_norm_unit_offset: bool = False
    gains: bool = True
    temperature_scale: float = 0.0
    temperature_every: int = 1
    rotary: int = 0
    state: bool = True
    half: bool = False
    together: int = 0
    near: bool = True

    @property
    def kept_rows(self) -> int | None:
        """Number of last rows that the cache keeps; None: all, also if a window covers most of a context."""
        last_rows = self.window if self.state and self.causal else None
        return None if last_rows is None or last_rows + 2 * PAGE >= self.context else last_rows

    @property
    def padded(self) -> int:
        """Elements of a head in the cache, a multiple of the vector size."""
        return ceil_div(self.head_dim, 4) * 4

    @property
    def qkv_width(self) -> int:
        """Elements of a row of q, k and v."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def gain_sizes(self) -> tuple[int, int]:
        """Sizes of the gains of query heads and of key heads."""
        queries, keys = (self.heads, self.kv_heads) if self.own_gains else (1, 1)
        return queries * self.head_dim, keys * self.head_dim

    @property
    def page(self) -> int:
        """Rows of a page; without a state one page holds the call's rows."""
        return PAGE if self.state else self.together or self.context

    @property
    def pages(self) -> int:
        """Pages of a sequence that fills the context."""
        return ceil_div(self.context, self.page)

    @property
    def dtype(self) -> Literal["float16", "float32"]:
        """NumPy name of the cache's dtype."""
        return "float16" if self.half else "float32"

    @property
    def page_bytes(self) -> int:
        """Bytes of the keys of a page; the values take as many."""
        return self.kv_heads * self.page * self.padded * (2 if self.half else 4)

    @property
    def preludes(self) -> tuple[str, str]:
        """Shader files that locate, read and write rows of the cache."""
        return "pages", f"kv/{self.dtype}"

    def constants(self) -> dict[str, Constant]:
        """Constants that the kernels share."""
        return {
            "HEADS": self.heads,
            "KV_HEADS": self.kv_heads,
            "HEAD_DIM": self.head_dim,
            "CONTEXT": self.context,
            "PAGE": self.page,
            "PAGES": self.pages,
            "HAS_STATE": self.state,
            "NEAR": False,
        }

    def score_constants(self) -> dict[str, Constant]:
        """Constants shared by the kernels that compute scores."""
        return {
            "CHUNK": self.chunk or 0,
            "WINDOW": self.window or 0,
            "SOFTCAP": float(self.softcap or 0.0),
            "SINKS": self.sinks,
            "SINKS_AT": sum(self.gain_sizes),
        }

    def input_constants(self) -> dict[str, Constant]:
        """Constants of the kernels that read q, k and v directly from the product's output."""
        return self.constants() | {
            "QK_NORM": NORMS[self.qk_norm],
            "OWN_GAINS": self.own_gains,
            "EPS": float(self.qk_norm_eps),
            "NORM_UNIT": 1.0 if self.qk_norm_unit_offset else 0.0,
            "ROTARY": self.rotary,
            "SCALE": float(self.scale),
            "GAINS": self.gains,
            "WARMTH": float(self.temperature_scale),
            "WARMER_EVERY": self.temperature_every,
            "QKV_STRIDE": ceil_div(self.qkv_width, 4) * 4,
        }


def append(shape: AttentionShape, *, halves: bool = False) -> Dispatch:
    """Normalise, rotate and store q, k and v of sequences with several rows; q as float32, or scaled and as halves.

    Buffers: qkv, head_params, rope, keys, values, tables, q, ctl; with halves undo.
    """
    if halves and shape.head_dim % 8 == 0 and shape.rotary % 8 == 0:
        return _halve_append(shape)
    constants = shape.input_constants() | {"WG": 64}
    return Dispatch(
        kernel="attend_append",
        grid=WorkgroupGrid(x=shape.heads + 2 * shape.kv_heads, rows_each=1, over="multi_rows"),
        constants=constants,
        preludes=(*shape.preludes, "warmth", "queries/halves" if halves else "queries/float32"),
    )


def _halve_append(shape: AttentionShape) -> Dispatch:
    team, heads = power_of_two(shape.head_dim // 8), shape.heads + 2 * shape.kv_heads
    workgroup = max(team, min(_APPEND_WORKGROUP, power_of_two(team * heads)))
    return Dispatch(
        kernel="halve_append",
        grid=WorkgroupGrid(x=ceil_div(team * heads, workgroup), rows_each=1, over="multi_rows"),
        constants=shape.input_constants() | {"WG": workgroup, "BATCH": 1, "TEAM": team},
        preludes=(*shape.preludes, "warmth", "queries/halves"),
    )


def rows(shape: AttentionShape, caps: Caps, cut: RowsTuning | None = None) -> Dispatch:
    """Attention of blocks of rows, tuned by `tune_rows` unless `tuning` is passed.

    Buffers: q, keys, values, tables, y, head_params, ctl.
    """
    cut = cut or tune_rows(shape, caps)
    vectors, unroll = ceil_div(shape.head_dim, 4), min(8, caps.unroll)
    constants = (
        shape.constants()
        | {
            "WG": cut.workgroup,
            "TX": cut.across,
            "BQ": cut.rows,
            "BK": cut.positions,
            "DU": max(d for d in range(1, unroll + 1) if vectors % d == 0),
            "JU": max(d for d in range(1, unroll + 1) if cut.positions % d == 0),
            "Y_STRIDE": ceil_div(shape.heads * shape.head_dim, 4) * 4,
            "CAUSAL": shape.causal,
        }
        | shape.score_constants()
    )
    return Dispatch(
        kernel="attend_rows",
        grid=WorkgroupGrid(x=shape.heads, rows_each=1, over="blocks"),
        constants=constants,
        preludes=shape.preludes,
    )


class RowsTuning(NamedTuple):
    """Tuning of prefill attention: `rows` by tiles of `positions`, in a workgroup of rows of `across` lanes."""

    rows: int
    positions: int
    workgroup: int = 128
    across: int = 16


_ROWS_TUNINGS = (
    RowsTuning(32, 32),
    RowsTuning(16, 32),
    RowsTuning(16, 16),
    RowsTuning(8, 16),
    RowsTuning(4, 8, workgroup=32, across=8),
)


def tune_rows(shape: AttentionShape, caps: Caps) -> RowsTuning:
    """Return the largest block whose tiles fit workgroup memory.

    Raises
    ------
    UnsupportedError : not even the smallest fits
    """
    for cut in _ROWS_TUNINGS:
        if cut.workgroup <= caps.max_workgroup and _rows_bytes(shape, cut) <= caps.max_shared:
            return cut
    raise UnsupportedError(
        f"attention over heads of {shape.head_dim} needs {_rows_bytes(shape, _ROWS_TUNINGS[-1])} bytes of workgroup "
        f"memory; this GPU has {caps.max_shared}",
        hint="use device='cpu'",
    )


def _rows_bytes(shape: AttentionShape, cut: RowsTuning) -> int:
    """Workgroup memory of `attend_rows`: tiles of queries and of keys or values, scores, sums and factors of rows."""
    row = 16 * (ceil_div(shape.head_dim, 4) | 1)
    scores = cut.rows * (cut.positions + 1)
    return row * (cut.rows + cut.positions) + 4 * (scores + cut.workgroup + cut.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTuning:
    """Tuning of decoding attention.

    `block` query heads per workgroup, `team` lanes per position with `vectors` vectors each, `unroll` positions in
    flight.
    """

    splits: int
    block: int
    team: int
    vectors: int
    unroll: int
    workgroup: int


def tune_split(shape: AttentionShape, caps: Caps, rows: int = 1) -> SplitTuning:
    """Choose enough splits for the rows to occupy the device, each of at least 32 positions.

    Every split adds to the input of the output projection, so short contexts get no more than 8. Query heads that share
    keys share a workgroup only while all processors have work: their arithmetic is serial, while reading the keys again
    is served by the cache.
    """
    share = shape.heads // shape.kv_heads
    vectors = ceil_div(shape.head_dim, 4)
    team = min(caps.subgroup_size or 8, power_of_two(vectors), 32)
    each = ceil_div(vectors, team)
    most = min(max(8, shape.context // 512), 16)
    least = caps.invocations // (512 if rows == 1 else 1024)  # the joining kernel reads them for every row
    splits = max(1, min(ceil_div(least, shape.heads * rows), most, ceil_div(shape.context, 32)))
    fitting = [
        (block, workgroup)
        for block in range(min(share, _MOST_HEADS), 0, -1)
        for workgroup in (256, 128, 64)
        if share % block == 0
        and workgroup <= min(caps.max_workgroup, max(64, 16 * team))
        and _split_bytes(vectors, team, block, workgroup) <= caps.max_shared
    ] or [(1, max(32, team))]
    least = caps.invocations // 1024
    busy = (cut for cut in fitting if shape.heads // cut[0] * splits * rows >= least)
    block, workgroup = next(busy, next(cut for cut in fitting if cut[0] == fitting[-1][0]))
    unroll = max(1, min(64 * team // workgroup, 8 // each))
    return SplitTuning(splits=splits, block=block, team=team, vectors=each, unroll=unroll, workgroup=workgroup)


def _split_bytes(vectors: int, team: int, block: int, workgroup: int) -> int:
    """Workgroup memory of `attend_split`: heads, partial results of teams, and sums if there are no subgroups."""
    return 16 * vectors * (block + 2) + workgroup // team * block * (16 * vectors + 8) + 4 * workgroup


def is_alone(shape: AttentionShape, tuning: SplitTuning) -> bool:
    """Whether a row's single split can write its outputs directly, without joining or packing."""
    return tuning.splits == 1 and shape.head_dim % 4 == 0


def split(shape: AttentionShape, caps: Caps, rows: int = 1) -> Dispatch:
    """Attention of one row per sequence over its cache, in splits, for up to `rows` rows.

    Buffers: qkv, head_params, rope, keys, values, tables, parts, maxima, ctl; `parts` is the output if `is_alone`.
    """
    tuning = tune_split(shape, caps, rows)
    constants = (
        shape.input_constants()
        | {
            "WG": tuning.workgroup,
            "TEAM": tuning.team,
            "VPL": tuning.vectors,
            "G": tuning.block,
            "UNROLL": tuning.unroll,
            "SPLITS": tuning.splits,
            "ALONE": is_alone(shape, tuning),
            "NEAR": rows == 1 and shape.near,
        }
        | shape.score_constants()
    )
    return Dispatch(
        kernel="attend_split",
        grid=WorkgroupGrid(x=shape.heads // tuning.block, z=tuning.splits, rows_each=1, over="singles"),
        constants=constants,
        preludes=(*shape.preludes, "warmth"),
    )


def combine(shape: AttentionShape, caps: Caps, rows: int = 1) -> Dispatch:
    """Join the splits of each row. Buffers: x (parts), maxima, y."""
    width = shape.heads * shape.padded
    constants: dict[str, Constant] = {
        "WG": 64,
        "K": width,
        "HEADS": shape.heads,
        "HEAD_DIM": shape.padded,
        "TRUE_DIM": shape.head_dim,
        "Y_STRIDE": ceil_div(shape.heads * shape.head_dim, 4) * 4,
        "SPLITS": tune_split(shape, caps, rows).splits,
    }
    return Dispatch(
        kernel="attend_combine",
        grid=WorkgroupGrid(x=ceil_div(width // 4, 64), rows_each=1, over="singles"),
        constants=constants,
        preludes=("source/partials",),
    )
