"""Recording: the steps of a fused plan become a flat list of bound dispatches, once for each way of running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volumetric.errors import UnsupportedError
from volumetric.kernels.gpu import attention, guards, matmul, tiles
from volumetric.kernels.gpu.attention import AttentionShape
from volumetric.kernels.gpu.dispatch import Caps, Dispatch, ceil_div, power_of_two
from volumetric.kernels.gpu.guards import Guard
from volumetric.kernels.gpu.matmul import MatmulShape, MatvecTuning, Partials
from volumetric.runtime.gpu.context import Call, GpuContext
from volumetric.runtime.gpu.fixed import FixedStates
from volumetric.runtime.gpu.pages import PagePool
from volumetric.runtime.gpu.recurrent import recurrent_product
from volumetric.runtime.gpu.residency import Matrix, Residency
from volumetric.runtime.gpu.rotation import RotationTables
from volumetric.runtime.gpu.rowwise import ROWWISE
from volumetric.runtime.gpu.scratch import Scratch
from volumetric.runtime.plan import Plan, Step

_FUSE_COMBINE_BYTES = 6 << 20
"""Bytes of attention partials that all workgroups of an output projection may read together before a launch of its own
is cheaper than reading them: about what the L2 of a large GPU moves in the 2 microseconds of a launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One way of running steps: how many rows to prepare for, and where values and control block are.

    Attributes
    ----------
    rows : most rows of a call; 1 selects the kernels for a single row
    singles : most of them that are the only row of their sequence
    control : uniform buffer with row counts and the place of each row
    values : value → buffer
    """

    rows: int
    singles: int
    control: Any
    values: Mapping[int, Any]


class Recorder:
    """Binds the steps of one plan to its resident weights, scratch and pages.

    Attributes
    ----------
    block : rows that prefill attention takes at once, the same in all layers
    apart : rows of some layer see later ones of their call, so that a call has one sequence
    rounds_to_int8 : products of integer weights round their other side
    """

    def __init__(
        self,
        context: GpuContext,
        plan: Plan,
        weights: Residency,
        scratch: Scratch,
        shapes: Mapping[int, AttentionShape],
        pool: PagePool,
        *,
        int8: bool,
    ) -> None:
        self._context = context
        self.plan = plan
        self.weights = weights
        self._shapes = shapes
        self.rounds_to_int8 = int8
        self._scratch = scratch
        self._pool = pool
        self._spares: dict[int, Any] = {}
        self._tables = RotationTables(context, scratch)
        caps = context.caps
        self._stats = scratch.make(16 * max(scratch.rows, scratch.tail_rows), "row statistics")
        self._q, self._parts, self._maxima = None, None, None
        self._alone: tuple[Any, Any] | None = None
        cuts = [attention.tune_rows(shape, caps) for shape in shapes.values()]
        self._cut = min(cuts, key=lambda cut: cut.rows, default=None)
        self.block = self._cut.rows if self._cut else 1
        self.apart = any(not (shape.state and shape.causal) for shape in shapes.values())
        self._reserve(scratch.rows, list(shapes.values()))

    def _reserve(self, rows: int, shapes: Sequence[AttentionShape]) -> None:
        """Make the buffers that attention needs beside values and caches, for calls of up to `rows`."""
        if not shapes:
            return
        make, caps = self._scratch.make, self._context.caps
        self._q = make(max(4 * rows * s.heads * s.padded for s in shapes), "queries")
        buckets = [1 << i for i in range(power_of_two(rows).bit_length())]
        parts = [(s, n * attention.tune_split(s, caps, n).splits) for s in shapes for n in buckets]
        self._parts = make(max(4 * n * s.heads * s.padded for s, n in parts), "attention parts")
        self._maxima = make(max(8 * n * s.heads for s, n in parts), "attention maxima")
        alone = [s.page_bytes for s in shapes if not s.state]
        if alone:
            self._alone = (make(max(alone), "keys"), make(max(alone), "values"))

    def record(self, steps: Sequence[tuple[int, Step]], frame: Frame) -> list[Call]:
        """Bind `steps`, given with their indices in the plan."""
        calls: list[Call] = []
        partials: dict[int, Partials] = {}
        for position, (index, step) in enumerate(steps):
            following = steps[position + 1][1] if position + 1 < len(steps) else None
            if step.op == "attend":
                calls += self._attend(index, step, following, frame, partials)
            elif step.op == "matmul":
                calls += self._matmul(step, frame, partials.get(step.inputs[0]))
            elif step.op in ROWWISE:
                calls += ROWWISE[step.op](self, step, frame)
            else:
                raise UnsupportedError(
                    f"the GPU has no kernel for {step.op!r} at {step.where}", hint="use device='cpu'"
                )
        return calls

    def bind(self, dispatch: Dispatch, frame: Frame, buffers: Mapping[str, Any], *, control: bool = True) -> Call:
        """Bind a dispatch; `control` where its kernel reads position or row count."""
        return self._context.bind(dispatch, {**buffers, "ctl": frame.control} if control else buffers)

    def width(self, value: int) -> int:
        """Elements in a row of a value."""
        return self.plan.values[value].width

    @property
    def caps(self) -> Caps:
        """What kernels may rely on."""
        return self._context.caps

    @property
    def fixed(self) -> FixedStates:
        """Fixed states of all sequences."""
        return self._pool.fixed

    @property
    def most_rows(self) -> int:
        """Rows that values have room for."""
        return self._scratch.rows

    def spare(self, nbytes: int) -> Any:
        """A buffer of this size for a result that the next dispatch reads, the same for every asker."""
        if nbytes not in self._spares:
            self._spares[nbytes] = self._scratch.make(nbytes, "running result")
        return self._spares[nbytes]

    def products(self) -> list[tuple[MatmulShape, int]]:
        """Different matrix products of a row, with the outputs of a shard: what a search for cuts has to look at."""
        found: dict[tuple[MatmulShape, int], None] = {}
        for step in self.plan.steps:
            if step.op in ("matmul", "recurrence"):
                shape, matrix = self._matmul_shape(step) if step.op == "matmul" else recurrent_product(self, step)
                found |= {(shape, shard.units): None for shard in matrix.shards}
        return list(found)

    def _matmul(self, step: Step, frame: Frame, partials: Partials | None) -> list[Call]:
        shape, matrix = self._matmul_shape(step)
        buffers = {"x": frame.values[step.inputs[0]], "y": frame.values[step.outputs[0]]}
        width4 = 4 * ceil_div(shape.k, 4)
        norm = self.weights.vector(
            "norm", (step.params.get("norm.weight"), width4), (step.params.get("norm.bias"), width4)
        )
        bias = self._bias(step, shape)
        buffers |= {"norm_params": norm} if norm is not None else {}
        buffers |= {"bias": bias} if bias is not None else {}
        buffers |= {"residual": frame.values[step.inputs[1]]} if shape.residual else {}
        guard = guards.NONE
        batched = frame.rows <= matmul.most_batched(self._context.caps)
        if step.guard is not None and (batched or self._context.caps.max_storage_buffers >= guards.MOST_BUFFERS):
            value, number = step.guard
            guard = guards.column(self.width(value), number)
            buffers["gate"] = frame.values[value]
        if batched:
            return self._matvec(shape, matrix, frame, buffers, partials, guard)
        calls = []
        if shape.norm is not None:
            stats = {"x": buffers["x"], "stats": self._stats}
            calls.append(self.bind(tiles.row_stats(shape), frame, stats))
            buffers["stats"] = self._stats
        tile = tiles.choose_tile(shape, frame.rows, self._context.caps)
        for shard in matrix.shards:
            dispatch = tiles.gemm(shape, self._context.caps, tile, first=shard.first, units=shard.units, guard=guard)
            calls.append(self.bind(dispatch, frame, {**buffers, **shard.buffers}))
        return calls

    def _matvec(
        self,
        shape: MatmulShape,
        matrix: Matrix,
        frame: Frame,
        buffers: dict[str, Any],
        partials: Partials | None,
        guard: Guard,
    ) -> list[Call]:
        if partials is not None:
            buffers |= {"x": self._parts, "maxima": self._maxima}
        calls = []
        for shard in matrix.shards:
            cut = self.cut_matvec(shape, shard.units, frame.rows)
            caps = self._context.caps
            dispatch = matmul.matvec(
                shape, caps, first=shard.first, units=shard.units, source=partials, tuning=cut, guard=guard
            )
            calls.append(self.bind(dispatch, frame, {**buffers, **shard.buffers}, control=cut.batch > 1))
        return calls

    def cut_matvec(self, shape: MatmulShape, units: int, rows: int) -> MatvecTuning:
        """How a product of so many rows is cut for `units` outputs."""
        caps = self._context.caps
        if rows == 1:
            return self._context.tunings.cut(shape, units, caps)
        return matmul.tune_batch(shape, units, caps, rows)

    def _matmul_shape(self, step: Step) -> tuple[MatmulShape, Matrix]:
        attrs = step.attrs
        parts: tuple[int, ...] = attrs["parts"]
        gated = attrs["combine"] == "gated"
        matrix = self.weights.matrix(tuple(step.params[f"weight.{i}"] for i in range(len(parts))), gated=gated)
        shape = MatmulShape(
            k=matrix.k,
            n=parts[0] if gated else sum(parts),
            format=matrix.format,
            gated=gated,
            activation=attrs["activation"],
            norm=attrs["norm"],
            norm_eps=attrs["norm_eps"],
            norm_unit_offset=attrs["norm_unit_offset"],
            norm_weight="norm.weight" in step.params,
            norm_bias="norm.bias" in step.params,
            bias=any(f"bias.{i}" in step.params for i in range(len(parts))),
            residual=attrs["residual"],
            softcap=attrs["softcap"],
            int8=self.rounds_to_int8,
        )
        return shape, matrix

    def _bias(self, step: Step, shape: MatmulShape) -> Any | None:
        parts: tuple[int, ...] = step.attrs["parts"]
        padded = 4 * ceil_div(shape.n, 4)
        lengths = [padded, padded] if shape.gated else [*parts[:-1], parts[-1] + padded - shape.n]
        return self.weights.vector(
            "bias", *((step.params.get(f"bias.{i}"), length) for i, length in enumerate(lengths))
        )

    def _attend(
        self, index: int, step: Step, following: Step | None, frame: Frame, partials: dict[int, Partials]
    ) -> list[Call]:
        shape = self._shapes[index]
        caps = self._context.caps
        gains = self.weights.vector(
            "head norms", (step.params.get("q_norm"), shape.head_dim), (step.params.get("k_norm"), shape.head_dim)
        )
        rope = self._tables.table(step.attrs["rope"], shape.context)
        caches = self._caches(step)
        source = {"qkv": frame.values[step.inputs[0]], **caches}
        source |= {} if gains is None else {"head_norms": gains}
        source |= {} if rope is None else {"rope": rope}
        y = frame.values[step.outputs[0]]
        calls = []
        if frame.singles < frame.rows:
            calls.append(self.bind(attention.append(shape), frame, {**source, "q": self._q}))
            calls.append(self.bind(attention.rows(shape, caps, self._cut), frame, {**caches, "q": self._q, "y": y}))
        if not frame.singles:
            return calls
        tuning = attention.tune_split(shape, caps, frame.singles)
        split = attention.split(shape, caps, frame.singles)
        if attention.is_alone(shape, tuning):
            return [*calls, self.bind(split, frame, {**source, "parts": y})]
        calls.append(self.bind(split, frame, {**source, "parts": self._parts, "maxima": self._maxima}))
        if self._fuses_combine(step, shape, following, frame):
            found = Partials(splits=tuning.splits, heads=shape.heads, head_dim=shape.head_dim)
            partials[step.outputs[0]] = found
            return calls
        buffers = {"x": self._parts, "maxima": self._maxima, "y": y}
        return [*calls, self.bind(attention.combine(shape, caps, frame.singles), frame, buffers, control=False)]

    def _caches(self, step: Step) -> dict[str, Any]:
        """Keys, values and page tables that a step reads and writes."""
        if not step.states:
            if self._alone is None:
                raise UnsupportedError(f"{step.where}: attention without a cache was not prepared")
            return {"keys": self._alone[0], "values": self._alone[1]}
        keys, values = (self._pool.buffers[step.states[name]] for name in ("k", "v"))
        return {"keys": keys, "values": values, "tables": self._pool.tables}

    def _fuses_combine(self, step: Step, shape: AttentionShape, following: Step | None, frame: Frame) -> bool:
        """Whether the next step is the only reader, can join the splits as it reads them, and gains by it."""
        out = step.outputs[0]
        if following is None or following.op != "matmul" or following.inputs[0] != out or shape.head_dim % 4:
            return False
        alone = len(list(self.plan.consumers(out))) == 1 and out not in self.plan.outputs and following.guard is None
        caps = self._context.caps
        if frame.singles != frame.rows or frame.rows > matmul.most_batched(caps):
            return False
        if not alone or following.attrs["norm"] is not None or caps.max_storage_buffers < 8:
            return False
        product, matrix = self._matmul_shape(following)
        cut = self.cut_matvec(product, matrix.units, frame.rows)
        groups = matmul.matvec(product, caps, first=0, units=matrix.units, tuning=cut).grid.x
        read = 4 * frame.rows * attention.tune_split(shape, caps, frame.singles).splits * product.k * groups
        return len(matrix.shards) == 1 and read <= _FUSE_COMBINE_BYTES
