"""A fused plan written as step tables for the CPU walker.

Three tables differ in how products run: *few* for up to `VECTOR_ROWS` rows (decoding), *many* with register tiles for
all steps, and *last* with tiles for the body and the last row alone in the tail. A fourth, *batch*, decodes one row of
each of several sequences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.kernels.cpu.append import ANGLE_ARGUMENTS, APPEND_ARGUMENTS
from volumetric.kernels.cpu.attention import ATTEND_ARGUMENTS, heads_together
from volumetric.kernels.cpu.batch import ROWS_SCRATCH
from volumetric.kernels.cpu.maths import ACTIVATIONS
from volumetric.kernels.cpu.operations import operation
from volumetric.kernels.cpu.panels import ROUNDINGS, Rounding, prepared_bytes
from volumetric.kernels.cpu.panels import ROWS as PANEL_ROWS
from volumetric.kernels.cpu.prepare import LAYER_NORM, NO_NORM, RMS_NORM
from volumetric.kernels.cpu.products import (
    BRAIN,
    FLOATS,
    OPENED,
    PRODUCT_ARGUMENTS,
    tile_scratch,
    vector_scratch,
)
from volumetric.kernels.cpu.rounded_attention import ROUNDED_ARGUMENTS
from volumetric.kernels.cpu.rows import (
    ELEMENT_ARGUMENTS,
    EMBEDDING_ARGUMENTS,
    JOIN_ARGUMENTS,
    NORM_ARGUMENTS,
    POSITION_ARGUMENTS,
)
from volumetric.kernels.cpu.tiles import float_tile_shape, integer_tile_shape
from volumetric.kernels.cpu.unpack import FORMAT_CODES
from volumetric.layers.rope import Rope, inverse_frequencies
from volumetric.runtime.cpu.batch import BatchTable, compile_batch
from volumetric.runtime.cpu.compiling import make_ready
from volumetric.runtime.cpu.layout import Layout
from volumetric.runtime.cpu.resident import Matrix, ResidentWeights
from volumetric.runtime.cpu.state import KVStorage
from volumetric.runtime.cpu.table import Record, StepTable, arguments, compile_table
from volumetric.runtime.plan import Plan, Step

Mode = Literal["few", "many", "last", "batch"]

_NORMS = {None: NO_NORM, "rms": RMS_NORM, "layer": LAYER_NORM}


class Program:
    """Step tables of a plan over its memory layout.

    Parameters
    ----------
    plan : a fused plan
    weights : its resident weights
    compute : int8 and bfloat16 round the activations that meet integer weights to int8; bfloat16 rounds those that
        meet bfloat16 weights too, where rows are many; float32 rounds nothing
    storage : of keys and values
    context : tokens that a state can hold
    """

    def __init__(
        self,
        plan: Plan,
        weights: ResidentWeights,
        *,
        compute: Rounding,
        storage: KVStorage,
        context: int,
    ) -> None:
        self.plan = plan
        self.weights = weights
        self.storage: KVStorage = storage
        self.layout = Layout(plan, weights, compute=compute, context=context)
        self._tables: dict[Mode, StepTable] = {}
        self._batch: BatchTable | None = None

    def table(self, mode: Mode) -> StepTable:
        """The table of a mode, compiled when first asked for.

        Decoding follows nearly every prompt: its operations are made ready with those of the first call, so that the
        wait for a compiler is one, is told as one, and never comes between two tokens.
        """
        if mode not in self._tables:
            records = self._all_records(mode)
            wanted = records if mode == "few" or "few" in self._tables else [*records, *self._all_records("few")]
            make_ready(((record.name, record.constants) for record in wanted), operation)
            if mode == "batch":
                self._batch = compile_batch(records)
                self._tables[mode] = self._batch.table
            else:
                self._tables[mode] = compile_table(records)
        return self._tables[mode]

    # ---- steps

    def _all_records(self, mode: Mode) -> list[Record]:
        records = [record for rope in self.layout.angles for record in self._angles(rope)]
        for step in self.plan.steps:
            records += self._records(step, mode)
        return records

    def _records(self, step: Step, mode: Mode) -> list[Record]:
        rule = getattr(self, f"_{step.op}", None)
        if step.op not in _OPERATIONS or rule is None:
            raise UnsupportedError(
                f"operation {step.op!r} at {step.where} has no CPU kernel", hint="use device='reference'"
            )
        return rule(step, mode)

    def _angles(self, rope: Rope) -> list[Record]:
        given = arguments(
            ANGLE_ARGUMENTS,
            frequencies=self.weights.keep(("angles", rope), lambda: inverse_frequencies(rope)),
            half=rope.dim // 2,
            out=self.layout.angles[rope],
            factor=float(getattr(rope, "attention_factor", 1.0)),
        )
        return [Record(name="angles", arguments=given)]

    def _embedding(self, step: Step, mode: Mode) -> list[Record]:
        given = arguments(
            EMBEDDING_ARGUMENTS,
            input=self.layout.slot(step.inputs[0]),
            output=self.layout.slot(step.outputs[0]),
            **self._table_arguments(step),
            scale=float(step.attrs["scale"]),
            vocabulary=self.plan.params[step.params["weight"]][0],
        )
        return [Record(name="embedding", arguments=given, tail=step.tail)]

    def _position_embedding(self, step: Step, mode: Mode) -> list[Record]:
        given = arguments(
            POSITION_ARGUMENTS,
            input=self.layout.slot(step.inputs[0]),
            output=self.layout.slot(step.outputs[0]),
            **self._table_arguments(step),
            offset=int(step.attrs["offset"]),
        )
        return [Record(name="position_embedding", arguments=given, tail=step.tail)]

    def _table_arguments(self, step: Step) -> dict[str, int]:
        table = self.weights.table(step.params["weight"])
        code = FORMAT_CODES[table.form.name]
        return {"weights": table.address, "panel_stride": table.panel_stride, "format": code, "k": table.k}

    def _norm(self, step: Step, mode: Mode) -> list[Record]:
        attrs = step.attrs
        given = arguments(
            NORM_ARGUMENTS,
            input=self.layout.slot(step.inputs[0]),
            output=self.layout.slot(step.outputs[0]),
            width=self.plan.values[step.inputs[0]].width,
            groups=int(attrs["groups"]),
            norm=_NORMS[attrs["kind"]],
            eps=float(attrs["eps"]),
            weight=self.weights.vector(step.params.get("weight"), unit_offset=bool(attrs["unit_offset"])),
            bias=self.weights.vector(step.params.get("bias")),
        )
        return [Record(name="norm", arguments=given, tail=step.tail)]

    def _matmul(self, step: Step, mode: Mode) -> list[Record]:
        tiles = mode == "many" or (mode == "last" and not step.tail)
        shared = tiles or mode == "batch"  # rows are prepared once for all threads
        records: list[Record] = []
        before: Rounding | None = None
        for matrix in self.weights.matrices(step):
            rounding = self.layout.rounding(matrix, tiles=tiles)
            fresh, before = before != rounding, rounding
            product = Record(
                name="tile_product" if tiles else "rows_product" if shared else "vector_product",
                constants=self._product_constants(step, matrix, tiles=tiles),
                arguments=self._product_arguments(step, matrix, rounding, fresh=fresh),
                tail=step.tail,
                # The next matrix of the same step may prepare rows in the same buffer: then all must be done with it.
                barrier=shared,
                note=f"{sum(matrix.rows)}x{matrix.k} {matrix.form.name}",
            )
            if shared and fresh:
                records.append(replace(product, name="prepare", constants=(), barrier=True, note=str(matrix.k)))
            records.append(product)
        records[-1] = replace(records[-1], barrier=True)
        return records

    def _product_constants(self, step: Step, matrix: Matrix, *, tiles: bool) -> tuple[str | int, ...]:
        form, rounding = matrix.form, self.layout.rounding(matrix, tiles=tiles)
        kind = form.name + (":exact" if form.is_integer and rounding == "float32" else "")
        code = ACTIVATIONS.index(step.attrs["activation"])
        self.layout.want_scratch(vector_scratch(matrix.k, prepared_bytes(matrix.k, rounding)) + ROWS_SCRATCH)
        if not tiles:
            return kind, code, int(matrix.gated)
        zero = {"int8": form.zero, "bfloat16": BRAIN, "float32": OPENED if form.is_integer else FLOATS}[rounding]
        rows, wide = integer_tile_shape() if rounding == "int8" else float_tile_shape()
        self.layout.want_scratch(tile_scratch(matrix.k, zero, rows, wide))
        return kind, code, int(matrix.gated), zero, rows, wide

    def _product_arguments(
        self, step: Step, matrix: Matrix, rounding: Rounding, *, fresh: bool
    ) -> tuple[int | float, ...]:
        attrs, weights = step.attrs, self.weights
        biases = [step.params.get(f"bias.{part}") for part in matrix.parts]
        if matrix.gated:
            gate, up = (weights.biases(_half(matrix, i), [biases[i]]) for i in (0, 1))
        else:
            gate, up = weights.biases(matrix, biases), 0
        unit_offset = bool(attrs["norm_unit_offset"])
        return arguments(
            PRODUCT_ARGUMENTS,
            input=self.layout.slot(step.inputs[0]),
            k=matrix.k,
            norm=_NORMS[attrs["norm"]],
            eps=float(attrs["norm_eps"]),
            norm_weight=weights.vector(step.params.get("norm.weight"), unit_offset=unit_offset),
            norm_bias=weights.vector(step.params.get("norm.bias")),
            weights=matrix.base,
            panel_stride=matrix.panel_stride,
            panels=matrix.panels,
            units=matrix.form.units(matrix.k),
            columns=self._columns(step, matrix),
            bias=gate,
            residual=self.layout.slot(step.inputs[1]) if attrs["residual"] else -1,
            output=self.layout.slot(step.outputs[0]),
            softcap=float(attrs["softcap"] or 0.0),
            up_bias=up,
            panel_bytes=matrix.panel_bytes,
            prepared=self.layout.prepared,
            row_bytes=prepared_bytes(matrix.k, rounding),
            rounding=ROUNDINGS.index(rounding),
            fresh=int(fresh),
        )

    def _columns(self, step: Step, matrix: Matrix) -> int:
        """Address of (first column, columns) for each panel of the matrix."""
        widths = step.attrs["parts"]
        starts = np.cumsum([0, *widths])
        pairs: list[tuple[int, int]] = []
        for part in matrix.parts[:1] if matrix.gated else matrix.parts:
            start = 0 if matrix.gated else int(starts[part])
            firsts = range(0, widths[part], PANEL_ROWS)
            pairs += [(start + first, min(PANEL_ROWS, widths[part] - first)) for first in firsts]
        return self.weights.keep(("columns", tuple(pairs)), lambda: np.array(pairs, np.int32))

    def _attend(self, step: Step, mode: Mode) -> list[Record]:
        attrs = step.attrs
        shared: dict[str, Any] = {
            "heads": attrs["heads"],
            "kv_heads": attrs["kv_heads"],
            "head_dim": attrs["head_dim"],
            "state": self.layout.pair(step),
            "queries": self.layout.queries,
            "held": int(bool(step.states)),
        }
        unit_offset = bool(attrs["qk_norm_unit_offset"])
        rope: Rope | None = attrs["rope"]
        append = arguments(
            APPEND_ARGUMENTS,
            **shared,
            input=self.layout.slot(step.inputs[0]),
            q_norm=self.weights.vector(step.params.get("q_norm"), unit_offset=unit_offset),
            k_norm=self.weights.vector(step.params.get("k_norm"), unit_offset=unit_offset),
            eps=float(attrs["qk_norm_eps"]),
            half=rope.dim // 2 if rope else 0,
            table=self.layout.angles[rope] if rope else 0,
            scale=float(attrs["scale"]),
        )
        shared |= {
            "output": self.layout.slot(step.outputs[0]),
            "causal": int(attrs["causal"]),
            "window": int(attrs["window"] or 0),
            "softcap": float(attrs["softcap"] or 0.0),
        }
        rows, wide = float_tile_shape()
        made = Record(name="append", constants=(self.storage,), arguments=append)
        if self.layout.rounds_attention and mode not in ("few", "batch") and self.storage != "int8":
            rounded = arguments(ROUNDED_ARGUMENTS, **shared, opened=self.layout.opened)
            return [
                made,
                Record(name="open_cache", constants=(self.storage,), arguments=rounded, tail=step.tail),
                Record(name="attend_rounded", constants=(rows, wide), arguments=rounded, tail=step.tail),
            ]
        attend = arguments(ATTEND_ARGUMENTS, **shared)
        name = "attend"
        if mode in ("few", "batch"):
            name, rows = "attend_few", heads_together(attrs["heads"], attrs["kv_heads"], rows)
        return [made, Record(name=name, constants=(self.storage, rows, wide), arguments=attend, tail=step.tail)]

    def _join(self, step: Step, scale: float) -> Record:
        pairs = [(self.layout.slot(i), self.plan.values[i].width) for i in step.inputs]
        given = arguments(
            JOIN_ARGUMENTS,
            inputs=self.weights.keep(("join", tuple(pairs)), lambda: np.array(pairs, np.int64)),
            count=len(pairs),
            output=self.layout.slot(step.outputs[0]),
            width=self.plan.values[step.outputs[0]].width,
            scale=scale,
        )
        return Record(name=step.op, arguments=given, tail=step.tail)

    def _add(self, step: Step, mode: Mode) -> list[Record]:
        return [self._join(step, float(step.attrs["scale"]))]

    def _multiply(self, step: Step, mode: Mode) -> list[Record]:
        return [self._join(step, 1.0)]

    def _concat(self, step: Step, mode: Mode) -> list[Record]:
        return [self._join(step, 1.0)]

    def _element(self, step: Step, parameter: float, *constants: int) -> list[Record]:
        given = arguments(
            ELEMENT_ARGUMENTS,
            input=self.layout.slot(step.inputs[0]),
            output=self.layout.slot(step.outputs[0]),
            width=self.plan.values[step.inputs[0]].width,
            parameter=parameter,
        )
        return [Record(name=step.op, constants=constants, arguments=given, tail=step.tail)]

    def _activation(self, step: Step, mode: Mode) -> list[Record]:
        return self._element(step, 0.0, ACTIVATIONS.index(step.attrs["name"]))

    def _softmax(self, step: Step, mode: Mode) -> list[Record]:
        return self._element(step, float(step.attrs["temperature"]))

    def _softcap(self, step: Step, mode: Mode) -> list[Record]:
        return self._element(step, float(step.attrs["cap"]))


_OPERATIONS = frozenset(
    {
        "embedding",
        "position_embedding",
        "norm",
        "matmul",
        "attend",
        "add",
        "multiply",
        "concat",
        "activation",
        "softmax",
        "softcap",
    }
)


def _half(matrix: Matrix, index: int) -> Matrix:
    """One matrix of a gated pair, for its bias."""
    return replace(matrix, gated=False, rows=(matrix.rows[index],), keys=(matrix.keys[index],))
