"""A fused plan written as step tables for the CPU walker.

Three tables differ in how products run: *few* for up to `VECTOR_ROWS` rows (decoding), *many* with register tiles for
all steps, and *last* with tiles for the body and the last row alone in the tail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from volumetric.errors import GenerationError, UnsupportedError
from volumetric.kernels.cpu.attention import ANGLE_ARGUMENTS, APPEND_ARGUMENTS, ATTEND_ARGUMENTS, heads_together
from volumetric.kernels.cpu.maths import ACTIVATIONS
from volumetric.kernels.cpu.panels import ROWS as PANEL_ROWS
from volumetric.kernels.cpu.panels import prepared_bytes
from volumetric.kernels.cpu.prepare import LAYER_NORM, NO_NORM, RMS_NORM
from volumetric.kernels.cpu.products import PRODUCT_ARGUMENTS, tile_scratch, vector_scratch
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
from volumetric.runtime.cpu.buffers import Buffers
from volumetric.runtime.cpu.resident import Matrix, ResidentWeights
from volumetric.runtime.cpu.table import Record, StepTable, arguments, compile_table
from volumetric.runtime.plan import KVSpec, Plan, Step

Mode = Literal["few", "many", "last"]

_NORMS = {None: NO_NORM, "rms": RMS_NORM, "layer": LAYER_NORM}


class Program:
    """Step tables of a plan, the buffers they run in, and what they need of a state.

    Parameters
    ----------
    plan : a fused plan
    weights : its resident weights
    exact : integer weights meet float32 activations, not int8
    storage : of keys and values, ``"float32"`` or ``"float16"``
    context : tokens that a state can hold

    Attributes
    ----------
    writes_output : the last step writes straight into the caller's array
    output_in_tail : the output can be computed for the last row alone
    vocabulary : ids below this have a row in every embedding that reads the input
    """

    def __init__(
        self, plan: Plan, weights: ResidentWeights, *, exact: bool, storage: Literal["float32", "float16"], context: int
    ) -> None:
        self.plan = plan
        self.weights = weights
        self.exact = exact
        self.storage = storage
        self.buffers = Buffers()
        self.caches = self._caches()
        self.scratch_bytes = self._attention_scratch(context)
        self.chunked = all(s.attrs["causal"] and s.state for s in plan.steps if s.op == "attend")
        self._table_slots: dict[Rope, int] = {}
        out = plan.outputs[0]
        made_by = [step for step in plan.steps if out in step.outputs]
        # A product stores its last columns one by one; other operations store whole vectors, beyond the row's end.
        self.writes_output = bool(made_by) and made_by[0].op == "matmul" and not list(plan.consumers(out))
        self.output_in_tail = bool(made_by) and made_by[0].tail
        self.output_width = plan.values[out].width
        tables = [s.params["weight"] for s in plan.steps if s.op == "embedding" and s.inputs[0] in plan.inputs]
        self.vocabulary = min((plan.params[key][0] for key in tables), default=0)
        # Before the values': a slot that comes later may get the buffer of a value that is read no more.
        self._prepared, self._queries = self._shared_slots()
        self._slots = self._assign_slots()
        self._tables: dict[Mode, StepTable] = {}

    def slot(self, value: int) -> int:
        """Slot of a value of the plan."""
        return self._slots[value]

    def check_positions(self, tokens: int) -> None:
        """Raise `GenerationError` if `tokens` tokens are more than a table of learned positions has."""
        for step in self.plan.steps:
            if step.op != "position_embedding":
                continue
            positions = self.plan.params[step.params["weight"]][0] - step.attrs["offset"]
            if tokens > positions:
                raise GenerationError(
                    f"{tokens} tokens exceed the {positions} positions that {step.where} has learned",
                    hint="shorten the prompt or generate fewer tokens",
                )

    def table(self, mode: Mode) -> StepTable:
        """The table of a mode, compiled when first asked for."""
        if mode not in self._tables:
            records = [record for rope in self._table_slots for record in self._angles(rope)]
            for step in self.plan.steps:
                records += self._records(step, mode)
            self._tables[mode] = compile_table(records)
        return self._tables[mode]

    # ---- memory

    def _caches(self) -> dict[str, KVSpec]:
        """Caches of a state: the plan's, and one for each form of attention that sees one call only."""
        caches = dict(self.plan.states)
        for step in self.plan.steps:
            if step.op == "attend" and step.state is None:
                spec = KVSpec(kv_heads=step.attrs["kv_heads"], head_dim=step.attrs["head_dim"])
                caches[_loose(spec)] = spec
        return caches

    def _attention_scratch(self, context: int) -> int:
        rows = float_tile_shape()[0]
        sizes = [-(-s.attrs["head_dim"] // 16) * 16 for s in self.plan.steps if s.op == "attend"]
        return 64 + rows * (max(sizes) + context + 32) * 4 if sizes else 64

    def _assign_slots(self) -> dict[int, int]:
        """A slot for each value; memory is reused once the last reader of a value is done."""
        plan, slots = self.plan, {}
        last_use = {i: at for at, step in enumerate(plan.steps) for i in (*step.inputs, *step.outputs)}
        outside = {plan.outputs[0]} if self.writes_output else set()
        for i in plan.inputs:
            is_ids = plan.values[i].dtype == "int32"
            slots[i] = self.buffers.outside() if is_ids else self.buffers.slot(4 * plan.values[i].width)
        keep = {*plan.inputs, *plan.outputs}
        for at, step in enumerate(plan.steps):
            for i in step.outputs:
                slots[i] = self.buffers.outside() if i in outside else self.buffers.slot(4 * plan.values[i].width)
            done = {i for i in (*step.inputs, *step.outputs) if last_use[i] == at and i not in keep}
            self.buffers.give_back([slots[i] for i in done])
        return slots

    def _shared_slots(self) -> tuple[int, int]:
        """Slots of prepared rows and of ready queries; also makes those of rotary angles."""
        prepared, queries = 64, 64
        for step in self.plan.steps:
            if step.op == "matmul":
                for matrix in self.weights.matrices(step):
                    prepared = max(prepared, prepared_bytes(matrix.k, quantised=self._quantised(matrix)))
            if step.op == "attend":
                queries = max(queries, 4 * step.attrs["heads"] * step.attrs["head_dim"])
                rope = step.attrs["rope"]
                if rope is not None and rope not in self._table_slots:
                    self._table_slots[rope] = self.buffers.slot(rope.dim * 4)
        return self.buffers.slot(prepared), self.buffers.slot(queries)

    # ---- steps

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
            out=self._table_slots[rope],
            factor=float(getattr(rope, "attention_factor", 1.0)),
        )
        return [Record(name="angles", arguments=given)]

    def _embedding(self, step: Step, mode: Mode) -> list[Record]:
        given = arguments(
            EMBEDDING_ARGUMENTS,
            input=self.slot(step.inputs[0]),
            output=self.slot(step.outputs[0]),
            **self._table_arguments(step),
            scale=float(step.attrs["scale"]),
            vocabulary=self.plan.params[step.params["weight"]][0],
        )
        return [Record(name="embedding", arguments=given, tail=step.tail)]

    def _position_embedding(self, step: Step, mode: Mode) -> list[Record]:
        given = arguments(
            POSITION_ARGUMENTS,
            input=self.slot(step.inputs[0]),
            output=self.slot(step.outputs[0]),
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
            input=self.slot(step.inputs[0]),
            output=self.slot(step.outputs[0]),
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
        records: list[Record] = []
        before: bool | None = None
        for matrix in self.weights.matrices(step):
            fresh = before != self._quantised(matrix)
            before = self._quantised(matrix)
            given = self._product_arguments(step, matrix, fresh=fresh)
            if tiles and fresh:
                records.append(Record(name="prepare", arguments=given, tail=step.tail))
            constants = self._product_constants(step, matrix, tiles=tiles)
            name = "tile_product" if tiles else "vector_product"
            # The next matrix of the same step may prepare rows in the same buffer: then all must be done with it.
            records.append(Record(name=name, constants=constants, arguments=given, tail=step.tail, barrier=tiles))
        records[-1] = replace(records[-1], barrier=True)
        return records

    def _quantised(self, matrix: Matrix) -> bool:
        return matrix.form.is_integer and not self.exact

    def _product_constants(self, step: Step, matrix: Matrix, *, tiles: bool) -> tuple[str | int, ...]:
        form, quantised = matrix.form, self._quantised(matrix)
        kind = form.name + (":exact" if form.is_integer and not quantised else "")
        code = ACTIVATIONS.index(step.attrs["activation"])
        self._want_scratch(vector_scratch(matrix.k, prepared_bytes(matrix.k, quantised=quantised)))
        if not tiles:
            return kind, code, int(matrix.gated)
        zero = form.zero if quantised else -2 if form.is_integer else -1
        rows, wide = integer_tile_shape() if quantised else float_tile_shape()
        self._want_scratch(tile_scratch(matrix.k, zero, rows, wide))
        return kind, code, int(matrix.gated), zero, rows, wide

    def _want_scratch(self, size: int) -> None:
        self.scratch_bytes = max(self.scratch_bytes, size)

    def _product_arguments(self, step: Step, matrix: Matrix, *, fresh: bool) -> tuple[int | float, ...]:
        attrs, weights = step.attrs, self.weights
        biases = [step.params.get(f"bias.{part}") for part in matrix.parts]
        if matrix.gated:
            gate, up = (weights.biases(_half(matrix, i), [biases[i]]) for i in (0, 1))
        else:
            gate, up = weights.biases(matrix, biases), 0
        unit_offset = bool(attrs["norm_unit_offset"])
        return arguments(
            PRODUCT_ARGUMENTS,
            input=self.slot(step.inputs[0]),
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
            residual=self.slot(step.inputs[1]) if attrs["residual"] else -1,
            output=self.slot(step.outputs[0]),
            softcap=float(attrs["softcap"] or 0.0),
            up_bias=up,
            panel_bytes=matrix.panel_bytes,
            prepared=self._prepared,
            row_bytes=prepared_bytes(matrix.k, quantised=self._quantised(matrix)),
            quantised=int(self._quantised(matrix)),
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
        cache_key = step.state or _loose(KVSpec(kv_heads=attrs["kv_heads"], head_dim=attrs["head_dim"]))
        shared: dict[str, Any] = {
            "heads": attrs["heads"],
            "kv_heads": attrs["kv_heads"],
            "head_dim": attrs["head_dim"],
            "state": list(self.caches).index(cache_key),
            "queries": self._queries,
            "held": int(step.state is not None),
        }
        unit_offset = bool(attrs["qk_norm_unit_offset"])
        rope: Rope | None = attrs["rope"]
        append = arguments(
            APPEND_ARGUMENTS,
            **shared,
            input=self.slot(step.inputs[0]),
            q_norm=self.weights.vector(step.params.get("q_norm"), unit_offset=unit_offset),
            k_norm=self.weights.vector(step.params.get("k_norm"), unit_offset=unit_offset),
            eps=float(attrs["qk_norm_eps"]),
            half=rope.dim // 2 if rope else 0,
            table=self._table_slots[rope] if rope else 0,
            scale=float(attrs["scale"]),
        )
        attend = arguments(
            ATTEND_ARGUMENTS,
            **shared,
            output=self.slot(step.outputs[0]),
            causal=int(attrs["causal"]),
            window=int(attrs["window"] or 0),
            softcap=float(attrs["softcap"] or 0.0),
        )
        rows, wide = float_tile_shape()
        name = "attend"
        if mode == "few":
            name, rows = "attend_few", heads_together(attrs["heads"], attrs["kv_heads"], rows)
        return [
            Record(name="append", constants=(self.storage,), arguments=append),
            Record(name=name, constants=(self.storage, rows, wide), arguments=attend, tail=step.tail),
        ]

    def _join(self, step: Step, scale: float) -> Record:
        pairs = [(self.slot(i), self.plan.values[i].width) for i in step.inputs]
        given = arguments(
            JOIN_ARGUMENTS,
            inputs=self.weights.keep(("join", tuple(pairs)), lambda: np.array(pairs, np.int64)),
            count=len(pairs),
            output=self.slot(step.outputs[0]),
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
            input=self.slot(step.inputs[0]),
            output=self.slot(step.outputs[0]),
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


def _loose(spec: KVSpec) -> str:
    """Name of the cache of attention without a state; layers of one form can share it."""
    return f"call:{spec.kv_heads}x{spec.head_dim}"


def _half(matrix: Matrix, index: int) -> Matrix:
    """One matrix of a gated pair, for its bias."""
    return replace(matrix, gated=False, rows=(matrix.rows[index],), keys=(matrix.keys[index],))
