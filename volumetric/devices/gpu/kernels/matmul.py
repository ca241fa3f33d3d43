"""Matrix product with its fused operations: norm before; bias, activation, gate, residual, soft cap after.

`matvec` is for one row or a few (decoding); `tiles` has the kernel for many.
"""

from __future__ import annotations

from dataclasses import dataclass

from volumetric.devices.gpu.kernels.dispatch import Caps, Constant, Dispatch, WorkgroupGrid, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.matrix_stacks import ONE, MatrixStack
from volumetric.devices.gpu.kernels.row_predicate import NONE, RowPredicate
from volumetric.devices.gpu.kernels.weight_formats import WeightFormat

NORMS = {None: 0, "rms": 1, "layer": 2}
_STAGE_BYTES = 24576
"""Workgroup memory for staged x. More would reduce occupancy; longer rows are staged in chunks."""
_BATCH_BYTES = 40960
"""The same for several rows of x, which need more of it."""
_BATCH_CUTS = ((4, 8), (4, 16), (2, 8), (2, 16), (1, 8), (1, 16), (2, 32), (1, 32))
"""Weight rows of a team and invocations in it, from the most reuse to the most invocations."""
_LEAST_LANES, _MOST_LANES = 9216, 32768
_WIDE = 12288
"""Weight rows from which a matrix counts as wide."""
_WIDE_BATCH = 16
_ROWS_TO_STAGE = 24
"""Fixed cost of a workgroup for `_WIDE_BATCH` rows of x, in weight rows."""
_SHORT_STAGE = 8192
"""Bytes of x that each workgroup may stage regardless of the weights it then reads."""
_READ_FOR_STAGED = 4.5
"""Bytes of weights that a workgroup should read for each byte of x that it stages."""
_ROUND_COST = 1.5
"""Fixed cost of a round of loads, in units: memory latency that fewer, longer rounds hide better."""


def bounds(limit: float | None, up_offset: float) -> dict[str, Constant]:
    """Constants of gates: a bound on both factors (None: there is none), and the offset added to the second."""
    return {"LIMIT": float(limit or 0.0), "UP_OFFSET": float(up_offset)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulShape:
    """A fused matrix product: y (rows, n) from x (rows, k).

    `gated` products read two weight rows (gate, up) for each of the `n` outputs, within `limit` if there is one. With
    `int8`, `matvec` rounds x to int8 in blocks of 32 if the weights are integers; `gemm` always computes in float32.
    With `weighted`, each row is multiplied by a factor from a stack of matrices.
    """

    k: int
    n: int
    format: WeightFormat
    gated: bool = False
    activation: str = "linear"
    norm: str | None = None
    norm_eps: float = 0.0
    norm_unit_offset: bool = False
    norm_weight: bool = False
    norm_bias: bool = False
    bias: bool = False
    residual: bool = False
    softcap: float | None = None
    weighted: bool = False
    limit: float | None = None
    up_offset: float = 0.0
    int8: bool = False

    @property
    def parts(self) -> int:
        """Weight rows per output."""
        return 2 if self.gated else 1

    def constants(self) -> dict[str, Constant]:
        """Constants that both kernels read."""
        return {
            "K": self.k,
            "N": self.n,
            "PARTS": self.parts,
            "PIECES": self.format.pieces(self.k),
            "GROUPS": self.format.groups(self.k),
            "NORM": NORMS[self.norm],
            "EPS": float(self.norm_eps),
            "NORM_UNIT": 1.0 if self.norm_unit_offset else 0.0,
            "HAS_NORM_WEIGHT": self.norm_weight,
            "HAS_NORM_BIAS": self.norm_bias,
            "HAS_BIAS": self.bias,
            "HAS_RESIDUAL": self.residual,
            "WEIGHTED": self.weighted,
            "SOFTCAP": float(self.softcap or 0.0),
            **bounds(self.limit, self.up_offset),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MatvecTuning:
    """Tuning of a matvec.

    `team` invocations per row group, `rows` outputs per team, `unroll` units in flight; `batch` rows of x per weight.
    """

    team: int
    rows: int
    unroll: int
    workgroup: int
    chunk: int
    chunks: int
    batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPartials:
    """x of an output projection as attention writes it: `splits` partial results of `heads` heads for each row."""

    splits: int
    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStates:
    """x of a recurrent product: for each sequence, the value before its row `step` from a fixed state of `ring`."""

    ring: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSlots:
    """x whose rows are the results of `count` experts, `width` numbers each; ``k`` counts whole units of each."""

    count: int
    width: int

    @staticmethod
    def over(layout: WeightFormat, count: int, width: int) -> int:
        """Return the ``k`` of such a product."""
        return count * layout.pieces(width) * layout.piece


def tune_matvec(shape: MatmulShape, units: int, caps: Caps) -> MatvecTuning:
    """Choose the tuning for `units` outputs.

    Measured on an H100: one row per subgroup fills the device from about 4096 rows on; below that K is split over more
    subgroups of one workgroup. Every workgroup stages all of x: if that is long, workgroups grow until they read a
    multiple of it in weights.
    """
    pieces = shape.format.pieces(shape.k)
    lanes = caps.subgroup_size or 32
    team = min(lanes, max(2, power_of_two(pieces)))
    while 2 * team <= min(256, caps.max_workgroup) and pieces >= 2 * team and units * team < caps.invocations // 2:
        team *= 2
    nibbles = shape.format.piece == 32
    many = units * team >= 2 * caps.invocations
    rows = 2 if nibbles and many and (shape.int8 or not shape.gated) else 1
    workgroup = 256 if units * team // rows >= caps.invocations // 2 else 128

    def reads_enough(workgroup: int) -> bool:
        read = workgroup // team * rows * shape.parts * shape.format.row_bytes(shape.k)
        return read >= _READ_FOR_STAGED * 4 * shape.k

    # 1024 invocations have 64 registers each, too few for two weight rows.
    widest = min(caps.max_workgroup, 1024 if rows * shape.parts == 1 else 512)
    while (
        4 * shape.k > _SHORT_STAGE
        and not reads_enough(workgroup)
        and units * team // rows // (2 * workgroup) >= caps.invocations // 1024
    ):
        workgroup *= 2
    cut = matvec_tuning(shape, caps, team=team, rows=rows, workgroup=max(min(workgroup, widest), team))
    while not fits_memory(shape, cut, caps) and cut.team > 1:
        team, workgroup, unroll = cut.team, cut.workgroup, max(cut.unroll - 1, 1)
        if cut.unroll == 1:
            team, workgroup = (team, workgroup // 2) if workgroup > max(team, 64) else (team // 2, workgroup)
        cut = matvec_tuning(shape, caps, team=team, rows=rows, workgroup=workgroup, unroll=unroll)
    return cut


def most_batched(caps: Caps) -> int:
    """Rows up to which `matvec` processes them in batches; beyond, `gemm` reads less.

    Software adapters take seconds to compile such long straight-line code.
    """
    return 64 if caps.unroll > 2 else 8


def tune_batch(shape: MatmulShape, units: int, caps: Caps, rows: int) -> MatvecTuning:
    """Choose the tuning for `units` outputs of a power of two of rows of x, or of as many at once as pays.

    Measured on an H100: the most reuse that leaves the device enough invocations, of which long rows need more. A
    vector of x in workgroup memory is multiplied by more weights if a team owns more outputs, and a weight by more rows
    in larger batches; only wide matrices have enough outputs for 16. For formats without scales, whose sums leave
    registers for more outputs, workgroups are sized to divide well among processors.
    """
    few = caps.unroll <= 2
    batch = min(rows, 4 if few else _WIDE_BATCH if units * shape.parts >= _WIDE else 8)
    if batch == _WIDE_BATCH and not shape.format.group:
        outputs, team = _least_rounds(shape, units, ceil_div(rows, batch), caps)
        return _fitting_batch(shape, caps, batch, team, outputs, 256)
    enough = min(max(_LEAST_LANES, 12 * shape.k), _MOST_LANES) * caps.invocations >> 17
    lanes = min(caps.subgroup_size or 8, 32)
    blocks = ceil_div(rows, batch)
    chosen = (1, lanes)
    for values, team in _BATCH_CUTS:
        outputs = 1 if few else values // shape.parts
        if outputs and team <= lanes and ceil_div(units, outputs) * team * blocks >= enough:
            chosen = (outputs, team)
            break
    outputs, team = chosen
    workgroup = 128 if shape.k < 1024 and units * shape.parts < _WIDE else 256
    return _fitting_batch(shape, caps, batch, team, outputs, workgroup)


def _least_rounds(shape: MatmulShape, units: int, blocks: int, caps: Caps) -> tuple[int, int]:
    """Outputs and invocations of a team that minimise the work of the busiest processor.

    Each processor gets as many workgroups as the others or one more. On an H100 the time of 12 tunings of three
    matrices was, within 8 %, proportional to the workgroups of such a processor times their weight rows plus
    `_ROWS_TO_STAGE`.
    """
    processors = max(caps.invocations // 1024, 1)
    lanes = min(caps.subgroup_size or 8, 32)

    def cost(outputs: int, team: int) -> int:
        own = 256 // team * outputs
        return ceil_div(ceil_div(units, own) * blocks, processors) * (own * shape.parts + _ROWS_TO_STAGE)

    cuts = [(values // shape.parts, min(team, lanes)) for values in (4, 6) for team in (8, 16, 32)]
    return min(cuts, key=lambda cut: cost(*cut))


def _fitting_batch(shape: MatmulShape, caps: Caps, batch: int, team: int, rows: int, workgroup: int) -> MatvecTuning:
    """Complete a tuning for several rows of x; if workgroup memory is short it processes fewer at once."""
    workgroup = max(min(workgroup, caps.max_workgroup), team, 4 * batch)
    cut = matvec_tuning(shape, caps, team=team, rows=rows, workgroup=workgroup, batch=batch)
    while not fits_memory(shape, cut, caps) and (cut.batch > 1 or cut.team > 1):
        batch, team = (batch // 2, team) if batch > 1 else (batch, team // 2)
        cut = matvec_tuning(shape, caps, team=team, rows=rows, workgroup=workgroup, unroll=1, batch=batch)
    return cut


def matvec_tuning(
    shape: MatmulShape, caps: Caps, *, team: int, rows: int, workgroup: int, unroll: int | None = None, batch: int = 1
) -> MatvecTuning:
    """Complete a tuning: chunks of x that fit workgroup memory, and units in flight if not set."""
    pieces = shape.format.pieces(shape.k)
    room = min(_STAGE_BYTES, caps.max_shared // 2) if batch == 1 else min(_BATCH_BYTES, caps.max_shared * 3 // 4)
    chunks = ceil_div(4 * batch * pieces * shape.format.piece, room)
    steps = ceil_div(ceil_div(pieces, chunks), team)
    # More than 8 loads of 16 bytes in flight spill registers, as do more than 4 units of nibbles.
    most = min(8 // (rows * shape.parts), 4 if shape.format.piece == 32 else 8)
    if batch > 1:  # two rounds are in flight, and sums of each row need registers too
        most = min(most, 2 if shape.format.piece < 32 else 1)
    unroll = unroll or _best_unroll(steps, max(1, most))
    chunk = ceil_div(steps, unroll) * unroll * team
    return MatvecTuning(
        team=team,
        rows=rows,
        unroll=unroll,
        workgroup=workgroup,
        chunk=chunk,
        chunks=ceil_div(pieces, chunk),
        batch=batch,
    )


def neighbour_tunings(shape: MatmulShape, cut: MatvecTuning, caps: Caps) -> list[MatvecTuning]:
    """Legal tunings that differ from `cut` in one choice: the next candidates of a search."""
    lanes = caps.subgroup_size or 32
    choices = {
        "team": (cut.team // 2, cut.team * 2),
        "rows": (cut.rows // 2, cut.rows * 2),
        "workgroup": (cut.workgroup // 2, cut.workgroup * 2),
        "unroll": (cut.unroll - 1, cut.unroll + 1, cut.unroll * 2),
    }
    cuts = []
    for name, values in choices.items():
        for value in values:
            changed = {
                "team": cut.team,
                "rows": cut.rows,
                "workgroup": cut.workgroup,
                "unroll": cut.unroll,
                name: value,
            }
            if name == "team":
                changed["workgroup"] = max(cut.workgroup, value)
            legal = lanes <= changed["team"] <= changed["workgroup"] <= caps.max_workgroup
            loads = changed["rows"] * shape.parts * changed["unroll"]
            if legal and changed["rows"] in (1, 2, 4) and changed["unroll"] >= 1 and loads <= 16:
                neighbour = matvec_tuning(shape, caps, **changed)
                wasteful = neighbour.chunk * neighbour.chunks >= 2 * max(shape.format.pieces(shape.k), neighbour.team)
                if not wasteful and fits_memory(shape, neighbour, caps):
                    cuts.append(neighbour)
    return cuts


def fits_memory(shape: MatmulShape, cut: MatvecTuning, caps: Caps) -> bool:
    """Whether workgroup memory suffices for a tuning's chunks of x in float32 and for its reductions."""
    staged = 4 * cut.batch * shape.format.piece * (cut.chunk | 1)
    return staged + reduction_bytes(cut.workgroup, caps, cut.batch) <= caps.max_shared


def reduction_bytes(workgroup: int, caps: Caps, batch: int = 1) -> int:
    """Workgroup memory of the linked reductions: two words per subgroup, or per invocation without subgroups."""
    return 8 * (workgroup // max(min(caps.subgroup_size, workgroup // batch), 1) + 1)


def _best_unroll(steps: int, most: int) -> int:
    """Units per round, up to `most`, with the least cost of rounds and of units beyond `steps`."""
    return min(range(1, most + 1), key=lambda u: ceil_div(steps, u) * (u + _ROUND_COST))


def outputs_are_spread(shape: MatmulShape, cut: MatvecTuning, caps: Caps) -> bool:
    """Whether the outputs of a team divide equally among its invocations."""
    return 1 < cut.team <= caps.subgroup_size and cut.rows * cut.batch % cut.team == 0


def matvec(
    shape: MatmulShape,
    caps: Caps,
    *,
    first: int,
    units: int,
    source: SplitPartials | SequenceStates | ExpertSlots | None = None,
    tuning: MatvecTuning | None = None,
    guard: RowPredicate = NONE,
    stack: MatrixStack = ONE,
) -> Dispatch:
    """One row, or as many at once as `tuning` says, times the rows of a shard: outputs `first` … `first + units`.

    Buffers: x, weights, scales, bias, norm_params, residual, y; for partials also maxima; for several rows, or if x is
    a state, also ctl; those of the predicate and of the stack.
    """
    tuning = tuning or tune_matvec(shape, units, caps)
    constants = shape.constants() | {
        "FIRST": first,
        "UNITS": units,
        "WG": tuning.workgroup,
        "TEAM": tuning.team,
        "ROWS": tuning.rows,
        "UNROLL": tuning.unroll,
        "CHUNK": tuning.chunk,
        "CHUNKS": tuning.chunks,
        "PLANE": tuning.chunk | 1,
        "BATCH": tuning.batch,
        **guard.over(tuning.batch),
        **stack.constants,
    }
    operand = "operand/int8" if shape.int8 and shape.format.integer else "operand/float32"
    where = "source/rows"
    if isinstance(source, SplitPartials):
        where = "source/partials"
        constants |= {"SPLITS": source.splits, "HEADS": source.heads, "HEAD_DIM": source.head_dim}
    of_pieces = isinstance(source, SequenceStates)
    if isinstance(source, SequenceStates):
        where = "source/states"
        constants |= {"RING": source.ring}
    if isinstance(source, ExpertSlots):
        where = "source/slots"
        constants |= {"PIECES": shape.format.pieces(source.width), "GROUPS": shape.format.groups(source.width)}
        constants |= {"SLOT_WIDTH": source.width}
    groups = ceil_div(units, tuning.workgroup // tuning.team * tuning.rows)
    many = tuning.batch > 1
    over = "pieces" if of_pieces else "total"
    share = ("batch/pieces" if of_pieces else "batch/many") if many else "batch/one"
    grid = WorkgroupGrid(x=groups, rows_each=tuning.batch, over=over) if many else WorkgroupGrid(x=groups)
    return Dispatch(
        kernel="matvec",
        grid=stack.grid(groups, tuning.batch) or grid,
        constants=constants,
        preludes=(
            *shape.format.preludes,
            f"unary/{shape.activation}",
            "bounded",
            *stack.preludes(share),
            where,
            guard.prelude,
            operand,
            "sums/spread" if outputs_are_spread(shape, tuning, caps) else "sums/whole",
        ),
        args=(source.step,) if isinstance(source, SequenceStates) else (),
    )
