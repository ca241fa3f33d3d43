"""Recording of attention over pages of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.command_list import RecordedDispatch, entry
from volumetric.devices.gpu.kernels import attention, matmul, matrix_attention
from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.kernels.dispatch import Caps, power_of_two
from volumetric.devices.gpu.kernels.matmul import SplitPartials
from volumetric.devices.gpu.page_set import rows_name, tables_name
from volumetric.devices.gpu.products import meets_halves, product_of
from volumetric.devices.gpu.rope_tables import RotationTables
from volumetric.devices.gpu.value_buffers import ValueBuffers
from volumetric.graph.ops import Graph, Node
from volumetric.network import Params
from volumetric.run.device import RunOptions
from volumetric.run.plan import Plan

if TYPE_CHECKING:
    from volumetric.devices.gpu.encode import RecordingFrame, RowRecorder
    from volumetric.devices.gpu.kernels.attention import RowsTuning
    from volumetric.devices.gpu.kernels.matrix_attention import AttentionTile

_FUSE_COMBINE_BYTES = 6 << 20
"""Bytes of attention partials read by all workgroups of an output projection together, up to which reading them is
cheaper than a separate launch: about what the L2 of a large GPU moves in the 2 microseconds of a launch."""


def with_kv_dtype(options: RunOptions, plan: Plan, params: Params) -> RunOptions:
    """Return the options with the type of keys and values: float16 if any weight has less than 32 bits, else float32.

    float16 halves the bytes read for each token, and moves the top logits of SmolLM2 by 0.01.

    Raises
    ------
    UnsupportedError : the options request int8
    """
    if options.kv_dtype == "int8":
        raise UnsupportedError("GPUs have no form of a cache in int8", hint="use kv_dtype='float16', or device='cpu'")
    if options.kv_dtype != "auto":
        return options
    narrow = any(params[key].scheme.dtype.bits < 32 for key in plan.params)
    return replace(options, kv_dtype="float16" if narrow else "float32")


def attends_halves(options: RunOptions, caps: Caps) -> bool:
    """Whether attention of prompts rounds its queries, and keys and values where they are float32, to float16.

    By itself only with a cache of float16, or weights of under 32 bits, whose products lose as many digits.
    """
    return options.compute == "float16" or (
        options.compute == "auto" and caps.matrix_units and options.kv_dtype == "float16"
    )


def attention_shapes(graph: Graph, options: RunOptions) -> dict[int, AttentionShape]:
    """Shape of each `attend` node, by the node's output, for calls of one sequence; see `seeing_together`."""
    shapes = {}
    for node in graph.nodes:
        if node.op != "attend":
            continue
        attrs = node.attrs
        stateful = node.input_by_role("k") is not None
        shapes[node.outputs[0]] = AttentionShape(
            heads=attrs["heads"],
            kv_heads=attrs["kv_heads"],
            head_dim=attrs["head_dim"],
            context=options.context,
            scale=attrs["scale"],
            causal=attrs["causal"],
            window=attrs["window"],
            softcap=attrs["softcap"],
            chunk=attrs["chunk"],
            sinks=node.input_by_role("sinks") is not None,
            qk_norm=attrs["qk_norm"],
            own_gains=attrs["own_gains"],
            qk_norm_eps=attrs["qk_norm_eps"],
            qk_norm_unit_offset=attrs["qk_norm_unit_offset"],
            gains=node.input_by_role("q_norm") is not None,
            temperature_scale=attrs["temperature_scale"],
            temperature_every=attrs["temperature_every"],
            rotary=0 if attrs["rope"] is None else attrs["rope"].dim,
            state=stateful,
            half=stateful and options.kv_dtype == "float16",  # without a state no rows are kept
        )
    near = min((shape.kept_rows or 0 for shape in shapes.values() if shape.state), default=0)
    return {i: replace(shape, near=(shape.kept_rows or 0) == near) for i, shape in shapes.items()}


def seeing_together(shapes: Mapping[int, AttentionShape], rows: int) -> dict[int, AttentionShape]:
    """Return shapes for calls of so many rows: without a state their keys and values are in one page."""
    return {i: shape if shape.state else replace(shape, together=rows) for i, shape in shapes.items()}


class AttentionBuffers:
    """State shared by the attention nodes of a graph: buffers other than values and pages, and tunings.

    Attributes
    ----------
    shapes : output of a node → its attention
    tiles : tile of each attention whose prompts are multiplied as halves; None: all are multiplied as float32
    block : rows that prefill attention processes at once, the same in all layers
    whole : some layer attends only to rows of the call, so that a call must have all rows of a sequence
    """

    def __init__(
        self, shapes: Mapping[int, AttentionShape], scratch: ValueBuffers, caps: Caps, *, halves: bool = False
    ) -> None:
        self.shapes = shapes
        self.caps = caps
        self.tables: RotationTables = RotationTables(scratch)
        cuts = [attention.tune_rows(shape, caps) for shape in shapes.values()]
        self.cut: RowsTuning | None = min(cuts, key=lambda tuning: tuning.rows, default=None)
        self.tiles: dict[AttentionShape, AttentionTile] | None = (
            matrix_attention.choose_tiles(shapes.values(), caps) if halves else None
        )
        blocks = {tile.rows for tile in self.tiles.values()} if self.tiles else {self.cut.rows} if self.cut else {1}
        (block,) = blocks
        self.block: int = block
        self.whole: bool = any(not (shape.state and shape.causal) for shape in shapes.values())
        self.queries, self.undo, self._parts, self._maxima, self.alone = "", "", "", "", {}
        self._reserve(scratch)

    def joined_splits(self) -> dict[str, str]:
        """Bindings of a kernel that joins the splits itself."""
        return {"x": self._parts, "maxima": self._maxima}

    def split_tuning(self) -> dict[str, str]:
        """Buffer for splits that are joined later."""
        return {"parts": self._parts, "maxima": self._maxima}

    def _reserve(self, scratch: ValueBuffers) -> None:
        """Create the buffers that attention needs, for calls of up to as many rows as values have room for."""
        shapes, rows, make = list(self.shapes.values()), scratch.rows, scratch.make
        if not shapes:
            return
        self.queries: str = make(max(4 * rows * s.heads * s.padded for s in shapes), "queries")
        if self.tiles:
            self.undo: str = make(max(4 * rows * s.heads for s in shapes), "powers of two of queries")
        if not self.whole:  # else all rows are in blocks
            buckets = [1 << i for i in range(power_of_two(rows).bit_length())]
            parts = [(s, n * attention.tune_split(s, self.caps, n).splits) for s in shapes for n in buckets]
            self._parts = make(max(4 * n * s.heads * s.padded for s, n in parts), "attention parts")
            self._maxima = make(max(8 * n * s.heads for s, n in parts), "attention maxima")
        alone = [s.page_bytes for s in shapes if not s.state]
        if alone:
            self.alone: dict[str, str] = {"keys": make(max(alone), "keys"), "values": make(max(alone), "values")}


def attend(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    """Write new keys and values to their pages, then attend from the call's rows to all of their sequences."""
    shape, shared, keys = r.attention.shapes[node.outputs[0]], r.attention, r.graph.keys_by_role(node)
    per_head = zip(
        (keys.get("q_norm"), keys.get("k_norm"), keys.get("sinks")), (*shape.gain_sizes, shape.heads), strict=True
    )
    params = r.weights.vector("heads", *per_head)
    rope = shared.tables.table(node.attrs["rope"], shape.context)
    caches = _cache_buffers(r, node)
    source = {"qkv": frame.values[node.inputs[0]], **caches}
    source |= {name: buffer for name, buffer in (("head_params", params), ("rope", rope)) if buffer is not None}
    y = frame.values[node.outputs[0]]
    entries = []
    if frame.singles < frame.rows:
        tile = shared.tiles[shape] if shared.tiles else None
        queries = {"q": shared.queries} | ({"undo": shared.undo} if tile else {})
        append = attention.append(shape, halves=tile is not None)
        entries.append(entry(append, {**source, **queries}, control=frame.control))
        rows = matrix_attention.rows(shape, r.caps, tile) if tile else attention.rows(shape, r.caps, shared.cut)
        own = {"head_params": params} if shape.sinks and params is not None else {}
        entries.append(entry(rows, {**caches, **queries, "y": y, **own}, control=frame.control))
    if not frame.singles:
        return entries
    tuning = attention.tune_split(shape, r.caps, frame.singles)
    split = attention.split(shape, r.caps, frame.singles)
    if attention.is_alone(shape, tuning):
        return [*entries, entry(split, {**source, "parts": y}, control=frame.control)]
    entries.append(entry(split, {**source, **shared.split_tuning()}, control=frame.control))
    if _reader_joins(r, node, frame):
        frame.partials[node.outputs[0]] = SplitPartials(
            splits=tuning.splits, heads=shape.heads, head_dim=shape.head_dim
        )
        return entries
    combine = attention.combine(shape, r.caps, frame.singles)
    return [*entries, entry(combine, {**shared.joined_splits(), "y": y})]


def _cache_buffers(r: RowRecorder, node: Node) -> dict[str, str]:
    """Keys, values and page tables of a node."""
    states = r.graph.states(node)
    if states:
        tables = tables_name(r.attention.shapes[node.outputs[0]].kept_rows)
        return {"keys": rows_name(states["k"]), "values": rows_name(states["v"]), "tables": tables}
    if not r.attention.alone:
        raise UnsupportedError(f"{node.where}: attention without a cache was not prepared")
    return r.attention.alone


def _reader_joins(r: RowRecorder, node: Node, frame: RecordingFrame) -> bool:
    """Whether the next node is the only reader, can join the splits while reading them, and is faster by it."""
    graph, out, shape = r.graph, node.outputs[0], r.attention.shapes[node.outputs[0]]
    readers = [graph.nodes[at] for at in graph.readers(out)]
    if len(readers) != 1 or out in graph.outputs or shape.head_dim % 4:
        return False
    reader = readers[0]
    at = next(i for i, other in enumerate(frame.nodes) if other is node)
    if reader is not next(iter(frame.nodes[at + 1 :]), None):
        return False
    if (
        reader.op != "linear"
        or reader.inputs[0] != out
        or reader.predicate is not None
        or reader.attrs["norm"] is not None
    ):
        return False
    if frame.singles != frame.rows or frame.rows > matmul.most_batched(r.caps) or r.caps.max_storage_buffers < 8:
        return False
    product, matrix = product_of(r, reader)
    if meets_halves(r, matrix, product, frame.rows):
        return False
    tuning = r.cut_matvec(product, matrix.units, frame.rows)
    groups = matmul.matvec(product, r.caps, first=0, units=matrix.units, tuning=tuning).grid.x
    splits = attention.tune_split(shape, r.caps, frame.singles).splits
    return len(matrix.shards) == 1 and 4 * frame.rows * splits * product.k * groups <= _FUSE_COMBINE_BYTES
