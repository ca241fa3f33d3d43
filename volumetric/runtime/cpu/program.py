"""The operations on rows of a network, written as step tables for the CPU walker.

Tables differ in how products run, before the tail and in it: *few* for up to `VECTOR_ROWS` rows (decoding), *some* for
up to `DIRECT_ROWS`, and *many* with opened panels. Results are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import numpy as np

from volumetric.kernels.cpu.append import ANGLE_ARGUMENTS, APPEND_ARGUMENTS
from volumetric.kernels.cpu.attention import ATTEND_ARGUMENTS, heads_together
from volumetric.kernels.cpu.maths import ACTIVATIONS
from volumetric.kernels.cpu.operations import operation
from volumetric.kernels.cpu.panels import ROUNDINGS, Rounding, prepared_bytes
from volumetric.kernels.cpu.panels import ROWS as PANEL_ROWS
from volumetric.kernels.cpu.prepare import LAYER_NORM, NO_NORM, RMS_NORM
from volumetric.kernels.cpu.products import (
    DIRECT_ROWS,
    PACKED_WIDE,
    PRODUCT_ARGUMENTS,
    VECTOR_ROWS,
    tile_scratch,
    vector_scratch,
)
from volumetric.kernels.cpu.rows import (
    ELEMENT_ARGUMENTS,
    EMBEDDING_ARGUMENTS,
    GATHER_ARGUMENTS,
    JOIN_ARGUMENTS,
    NORM_ARGUMENTS,
    POSITION_ARGUMENTS,
)
from volumetric.kernels.cpu.tiles import float_tile_shape, integer_tile_shape
from volumetric.kernels.cpu.unpack import FORMAT_CODES
from volumetric.layers.rope import Rope, inverse_frequencies
from volumetric.runtime.cpu.between import Between
from volumetric.runtime.cpu.branching import BRANCHING
from volumetric.runtime.cpu.compiling import make_ready
from volumetric.runtime.cpu.layout import Layout
from volumetric.runtime.cpu.resident import Matrix, ResidentWeights
from volumetric.runtime.cpu.state import KVStorage
from volumetric.runtime.cpu.table import Record, StepTable, arguments, compile_table
from volumetric.runtime.graph.cores import Core
from volumetric.runtime.graph.families.rowwise import LINEAR
from volumetric.runtime.graph.ops import Node
from volumetric.runtime.graph.segments import Cut

Form = Literal["few", "some", "many"]

Mode = tuple[Form, Form]
"""Forms of the products before the tail and in it."""


def form_of(rows: int) -> Form:
    """The form of products of so many rows."""
    return "few" if rows <= VECTOR_ROWS else "some" if rows <= DIRECT_ROWS else "many"


_NORMS = {None: NO_NORM, "rms": RMS_NORM, "layer": LAYER_NORM}


class Program:
    """Step tables of a network over its memory layout.

    Parameters
    ----------
    cut : the network
    weights : of what runs on rows, resident
    between : what runs between
    compute : int8 and bfloat16 round the activations that meet integer weights to int8; bfloat16 rounds those that
        meet bfloat16 weights too; float32 rounds nothing
    storage : of keys and values
    context : tokens that a state can hold

    Attributes
    ----------
    vocabulary : ids below this have a row in every embedding
    """

    def __init__(
        self,
        cut: Cut,
        weights: ResidentWeights,
        between: Between,
        *,
        compute: Rounding,
        storage: KVStorage,
        context: int,
    ) -> None:
        self.cut = cut
        self.graph = cut.graph
        self.weights = weights
        self.between = between
        self.storage: KVStorage = storage
        self.layout = Layout(cut, weights, compute=compute, context=context)
        read = (step.attrs["spec"].ids for step in cut.plan.steps if step.op == "embedding")
        self.vocabulary = min(read, default=0)
        self._tables: dict[Mode, StepTable] = {}
        made = {i for use in cut.uses if use.tail for i in use.writes}
        self._gathered = list(dict.fromkeys(i for use in cut.uses if use.tail for i in use.reads if i not in made))

    def table(self, mode: Mode) -> StepTable:
        """The table of a mode, compiled when first asked for.

        Decoding follows nearly every prompt: its operations are made ready with those of the first call, so that the
        wait for a compiler is one, is told as one, and never comes between two tokens.
        """
        if mode not in self._tables:
            records, stops = self._all_records(mode)
            few: Mode = ("few", "few")
            wanted = records if mode == few or few in self._tables else [*records, *self._all_records(few)[0]]
            every = [one for record in wanted for one in (record, *record.inner)]
            make_ready(((record.name, record.constants) for record in every if record.is_operation), operation)
            self._tables[mode] = compile_table(records, stops)
        return self._tables[mode]

    # ---- steps

    def _all_records(self, mode: Mode) -> tuple[list[Record], list[tuple[int, Core]]]:
        """Steps, and which cores run before which of them."""
        records = [record for rope in self.layout.angles for record in self._angles(rope)]
        stops: list[tuple[int, Core]] = []
        gathers = self._gathers()
        for at, part in enumerate(self.cut.parts):
            if part.tail:
                records += gathers
                gathers = []
            if part.graph is not None:
                stops.append((len(records), self.between.cores[at]))
                continue
            for guard, nodes in groupby(part.nodes, key=lambda node: node.guard):
                made = [record for node in nodes for record in self._records(node, mode)]
                records += made if guard is None else [self._guarded(guard, made)]
        return records, stops

    def _guarded(self, guard: tuple[int, int], records: list[Record]) -> Record:
        """What runs `records` if some row has a weight in a column of a value."""
        given = self.layout.slot(guard[0]), guard[1]
        return Record(name="guard", arguments=given, body=tuple(records), tail=records[0].tail)

    def _gathers(self) -> list[Record]:
        """What brings the rows that are wanted together, for the steps of the tail."""
        pairs = [(self.layout.slot(i), self.graph.tensors[i].width) for i in self._gathered]
        given = [arguments(GATHER_ARGUMENTS, slot=slot, width=width) for slot, width in pairs]
        records = [Record(name="gather", arguments=one, tail=True, barrier=False) for one in given]
        return [*records[:-1], *(replace(record, barrier=True) for record in records[-1:])]

    def output_row(self, row: int, wanted: int) -> int:
        """Where the output of row `row` is found after a call, row number `wanted` of those that are wanted."""
        output = self.graph.outputs[0]
        return wanted if self.layout.output_in_tail or output in self._gathered else row

    def _records(self, node: Node, mode: Mode) -> list[Record]:
        if node.op in BRANCHING:
            return BRANCHING[node.op](self, node, mode[node.tail])
        return getattr(self, f"_{node.op}")(node, mode)

    def _angles(self, rope: Rope) -> list[Record]:
        given = arguments(
            ANGLE_ARGUMENTS,
            frequencies=self.weights.keep(("angles", rope), lambda: inverse_frequencies(rope)),
            half=rope.dim // 2,
            out=self.layout.angles[rope],
            factor=rope.attention_factor,
        )
        return [Record(name="angles", arguments=given)]

    def _embedding(self, node: Node, mode: Mode) -> list[Record]:
        given = arguments(
            EMBEDDING_ARGUMENTS,
            input=self.layout.slot(node.inputs[0]),
            output=self.layout.slot(node.outputs[0]),
            **self._table_arguments(node),
            scale=float(node.attrs["scale"]),
            vocabulary=self.graph.tensors[node.inputs[1]].shape[0],
            divisor=int(node.attrs["divisor"]),
        )
        return [Record(name="embedding", arguments=given, tail=node.tail)]

    def _position_embedding(self, node: Node, mode: Mode) -> list[Record]:
        given = arguments(
            POSITION_ARGUMENTS,
            input=self.layout.slot(node.inputs[0]),
            output=self.layout.slot(node.outputs[0]),
            **self._table_arguments(node),
            offset=int(node.attrs["offset"]),
        )
        return [Record(name="position_embedding", arguments=given, tail=node.tail)]

    def _table_arguments(self, node: Node) -> dict[str, int]:
        table = self.weights.table(self.graph.keys(node)["weight"])
        code = FORMAT_CODES[table.form.name]
        return {"weights": table.address, "panel_stride": table.panel_stride, "format": code, "k": table.k}

    def _norm(self, node: Node, mode: Mode) -> list[Record]:
        attrs, params = node.attrs, self.graph.keys(node)
        given = arguments(
            NORM_ARGUMENTS,
            input=self.layout.slot(node.inputs[0]),
            output=self.layout.slot(node.outputs[0]),
            width=self.graph.tensors[node.inputs[0]].width,
            groups=1,
            norm=_NORMS[attrs["kind"]],
            eps=float(attrs["eps"]),
            weight=self.weights.vector(params.get("weight"), unit_offset=bool(attrs["unit_offset"])),
            bias=self.weights.vector(params.get("bias")),
        )
        return [Record(name="norm", arguments=given, tail=node.tail)]

    def _linear(self, node: Node, mode: Mode) -> list[Record]:
        ends = [self.layout.slot(i) for i in (node.inputs[0], node.outputs[0])]
        return self.products(node, mode[node.tail], *ends)

    def products(self, node: Node, form: Form, source: int, target: int) -> list[Record]:
        """Products of the rows in slot `source` with the matrices of a step, side by side in slot `target`."""
        records: list[Record] = []
        before: Rounding | None = None
        for matrix in self.weights.matrices(node):
            rounding = self.layout.rounding(matrix)
            fresh, before = before != rounding, rounding
            name = {"few": "vector_product", "some": "rows_product", "many": "tile_product"}[form]
            if form == "some" and not matrix.form.is_integer:
                name = "tile_product"
            shared, direct = form != "few", form != "few" and self._direct(node, matrix, rounding, source)
            product = Record(
                name=name,
                constants=self._product_constants(node, matrix, name),
                arguments=self._product_arguments(node, matrix, rounding, source, target, fresh=fresh, direct=direct),
                tail=node.tail,
                # The next matrix of the same step may prepare rows in the same buffer: then all must be done with it.
                barrier=shared,
                note=f"{sum(matrix.rows)}x{matrix.k} {matrix.form.name}",
            )
            if shared and fresh and not direct:
                records.append(replace(product, name="prepare", constants=(), barrier=True, note=str(matrix.k)))
            records.append(product)
        records[-1] = replace(records[-1], barrier=True)
        return records

    def _direct(self, node: Node, matrix: Matrix, rounding: Rounding, source: int) -> bool:
        """Whether tiles read the rows of a slot as they are: nothing norms, rounds, fills up or spreads them."""
        plain = rounding == "float32" and _product_attrs(node)["norm"] is None
        return plain and prepared_bytes(matrix.k, rounding) == 4 * matrix.k == self.layout.buffers.stride(source)

    def _product_constants(self, node: Node, matrix: Matrix, name: str) -> tuple[str | int, ...]:
        form, rounding = matrix.form, self.layout.rounding(matrix)
        exact = form.is_integer and rounding == "float32"
        kind = form.name + (":exact" if exact else ":rounded" if rounding == "bfloat16" else "")
        common = (kind, ACTIVATIONS.index(_product_attrs(node)["activation"]), int(matrix.gated))
        rows, wide = integer_tile_shape() if rounding == "int8" else float_tile_shape()
        if name == "tile_product":
            self.layout.want_scratch(tile_scratch(matrix.k, kind, rows, wide))
            return *common, rows, wide
        wide = PACKED_WIDE if form.is_integer else wide
        self.layout.want_scratch(vector_scratch(matrix.k, prepared_bytes(matrix.k, rounding), wide))
        return common if name == "rows_product" else (*common, wide)

    def _product_arguments(
        self, node: Node, matrix: Matrix, rounding: Rounding, source: int, target: int, *, fresh: bool, direct: bool
    ) -> tuple[int | float, ...]:
        attrs, weights, params = _product_attrs(node), self.weights, self.graph.keys(node)
        biases = [params.get(f"bias.{part}") for part in matrix.parts]
        if matrix.gated:
            gate, up = (weights.biases(_half(matrix, i), [biases[i]]) for i in (0, 1))
        else:
            gate, up = weights.biases(matrix, biases), 0
        unit_offset = bool(attrs["norm_unit_offset"])
        return arguments(
            PRODUCT_ARGUMENTS,
            input=source,
            k=matrix.k,
            norm=_NORMS[attrs["norm"]],
            eps=float(attrs["norm_eps"]),
            norm_weight=weights.vector(params.get("norm.weight"), unit_offset=unit_offset),
            norm_bias=weights.vector(params.get("norm.bias")),
            weights=matrix.base,
            panel_stride=matrix.panel_stride,
            panels=matrix.panels,
            units=matrix.form.units(matrix.k),
            columns=self._columns(node, matrix),
            bias=gate,
            residual=self.layout.slot(node.inputs[1]) if attrs["residual"] else -1,
            output=target,
            softcap=float(attrs["softcap"] or 0.0),
            up_bias=up,
            panel_bytes=matrix.panel_bytes,
            prepared=source if direct else self.layout.prepared,
            row_bytes=prepared_bytes(matrix.k, rounding),
            rounding=ROUNDINGS.index(rounding),
            fresh=int(fresh),
        )

    def _columns(self, node: Node, matrix: Matrix) -> int:
        """Address of (first column, columns) for each panel of the matrix."""
        widths = node.attrs["parts"]
        starts = np.cumsum([0, *widths])
        pairs: list[tuple[int, int]] = []
        for part in matrix.parts[:1] if matrix.gated else matrix.parts:
            start = 0 if matrix.gated else int(starts[part])
            firsts = range(0, widths[part], PANEL_ROWS)
            pairs += [(start + first, min(PANEL_ROWS, widths[part] - first)) for first in firsts]
        return self.weights.keep(("columns", tuple(pairs)), lambda: np.array(pairs, np.int32))

    def _attend(self, node: Node, mode: Mode) -> list[Record]:
        attrs, params = node.attrs, self.graph.keys(node)
        shared: dict[str, Any] = {
            "heads": attrs["heads"],
            "kv_heads": attrs["kv_heads"],
            "head_dim": attrs["head_dim"],
            "state": self.layout.pair(node),
            "queries": self.layout.queries,
            "held": int(bool(self.graph.states(node))),
        }
        unit_offset = bool(attrs["qk_norm_unit_offset"])
        rope: Rope | None = attrs["rope"]
        append = arguments(
            APPEND_ARGUMENTS,
            **shared,
            input=self.layout.slot(node.inputs[0]),
            q_norm=self.weights.vector(params.get("q_norm"), unit_offset=unit_offset),
            k_norm=self.weights.vector(params.get("k_norm"), unit_offset=unit_offset),
            eps=float(attrs["qk_norm_eps"]),
            half=rope.dim // 2 if rope else 0,
            table=self.layout.angles[rope] if rope else 0,
            scale=float(attrs["scale"]),
        )
        shared |= {
            "output": self.layout.slot(node.outputs[0]),
            "causal": int(attrs["causal"]),
            "window": int(attrs["window"] or 0),
            "softcap": float(attrs["softcap"] or 0.0),
        }
        rows, wide = float_tile_shape()
        together = heads_together(attrs["heads"], attrs["kv_heads"], rows)
        attend = arguments(ATTEND_ARGUMENTS, **shared)
        rounds = self.layout.rounds_attention and self.storage != "int8"
        made = Record(name="append", constants=(self.storage, int(rounds)), arguments=append)
        few = Record(name="attend_few", constants=(self.storage, int(rounds), together, wide), arguments=attend)
        if mode[0] == "few":
            return [Record(name="each_piece", arguments=(), few=one) for one in (made, few)]
        records = [Record(name="each_piece", arguments=(), few=made, many=made)]
        if rounds:
            opened = Record(name="open_cache", constants=(self.storage,), arguments=attend)
            records.append(Record(name="each_piece", arguments=(), many=opened))
            many = Record(name="attend_rounded", constants=(rows, wide), arguments=attend)
        else:
            many = Record(name="attend", constants=(self.storage, rows, wide), arguments=attend)
        return [*records, Record(name="each_piece", arguments=(), few=few, many=many)]

    def _join(self, name: str, node: Node, scale: float) -> Record:
        pairs = [(self.layout.slot(i), self.graph.tensors[i].width) for i in node.inputs]
        given = arguments(
            JOIN_ARGUMENTS,
            inputs=self.weights.keep(("join", tuple(pairs)), lambda: np.array(pairs, np.int64)),
            count=len(pairs),
            output=self.layout.slot(node.outputs[0]),
            width=self.graph.tensors[node.outputs[0]].width,
            scale=scale,
        )
        return Record(name=name, arguments=given, tail=node.tail)

    def _sum(self, node: Node, mode: Mode) -> list[Record]:
        return [self._join("add", node, float(node.attrs["scale"]))]

    def _concat(self, node: Node, mode: Mode) -> list[Record]:
        return [self._join("concat", node, 1.0)]

    def _element(self, name: str, node: Node, parameter: float) -> list[Record]:
        given = arguments(
            ELEMENT_ARGUMENTS,
            input=self.layout.slot(node.inputs[0]),
            output=self.layout.slot(node.outputs[0]),
            width=self.graph.tensors[node.inputs[0]].width,
            parameter=parameter,
        )
        return [Record(name=name, arguments=given, tail=node.tail)]

    def _scaled_softmax(self, node: Node, mode: Mode) -> list[Record]:
        return self._element("softmax", node, float(node.attrs["temperature"]))

    def _softcap(self, node: Node, mode: Mode) -> list[Record]:
        return self._element("softcap", node, float(node.attrs["cap"]))


def _product_attrs(node: Node) -> Mapping[str, Any]:
    """Attributes of a product; that of a recurrence has nothing beside it."""
    return node.attrs if node.op == "linear" else {**LINEAR, **node.attrs}


def _half(matrix: Matrix, index: int) -> Matrix:
    """One matrix of a gated pair, for its bias."""
    return replace(matrix, gated=False, rows=(matrix.rows[index],), keys=(matrix.keys[index],))
