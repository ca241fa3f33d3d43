"""Where everything lies that a program touches besides its weights: values, shared rows, caches, scratch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.cpu.panels import Rounding, prepared_bytes
from volumetric.kernels.cpu.pieces import BLOCK_BYTES
from volumetric.kernels.cpu.rounded_attention import opened_bytes
from volumetric.kernels.cpu.target import target
from volumetric.kernels.cpu.tiles import float_tile_shape
from volumetric.layers.rope import Rope
from volumetric.runtime.cpu.arena import address_of, aligned_zeros
from volumetric.runtime.cpu.buffers import Buffers
from volumetric.runtime.cpu.resident import PRODUCTS, Matrix, ResidentWeights
from volumetric.runtime.cpu.state import Pair, plain_states
from volumetric.runtime.graph.ops import Node
from volumetric.runtime.graph.segments import Cut


class Layout:
    """Memory of a network.

    Attributes
    ----------
    buffers : rows of values
    prepared, queries : slots of the rows that products and attention share among threads
    hidden, held, from_hidden : slots of what a recurrent cell has for each piece: h, c and the product with h
    rounds_attention : attention multiplies in bfloat16
    angles : slot of the rotary angles of each kind
    scratch_bytes : scratch of one thread; grows as operations are added
    writes_output : the last step writes straight into the caller's array
    output_in_tail : the output can be computed for the last row alone
    """

    def __init__(self, cut: Cut, weights: ResidentWeights, *, compute: Rounding, context: int) -> None:
        self._cut = cut
        self._weights = weights
        self._compute: Rounding = compute
        graph, nodes = cut.graph, cut.rows
        widths = [tensor.width for tensor in graph.tensors]
        attends = [node for node in nodes if node.op == "attend"]
        self.buffers = Buffers()
        cells = [node for node in nodes if node.op == "recurrence"]
        self._loop_bytes = BLOCK_BYTES if cells else 0
        units = max((widths[node.outputs[0]] for node in cells), default=0)
        self.hidden, self.held = self.buffers.slot(4 * units), self.buffers.slot(4 * units)
        self.from_hidden = self.buffers.slot(max((4 * widths[node.inputs[0]] for node in cells), default=0))
        self._pairs = {pair: i for i, pair in enumerate(dict.fromkeys(map(self._pair_of, attends)))}
        self.scratch_bytes = _attention_scratch(attends, context)
        out = graph.outputs[0]
        # A product stores its last columns one by one; other operations store whole vectors, beyond the row's end.
        self.output_in_tail = any(use.tail and out in use.writes for use in cut.uses)
        by_product = any(node.op == "linear" and node.outputs[0] == out for node in nodes)
        self.writes_output = self.output_in_tail and by_product and not list(graph.readers(out))
        # Before the values': a slot that comes later may get the buffer of a value that is read no more.
        self.prepared = self.buffers.slot(self._prepared_bytes())
        self.queries = self.buffers.slot(
            max((4 * node.attrs["heads"] * node.attrs["head_dim"] for node in attends), default=64)
        )
        self._opened_bytes = max(
            (opened_bytes(node.attrs["kv_heads"], node.attrs["head_dim"]) for node in attends), default=0
        )
        self._opened_memory = aligned_zeros(0)
        self.rounds_attention = self._rounds_attention()
        ropes: list[Rope] = [node.attrs["rope"] for node in attends if node.attrs["rope"] is not None]
        self.angles = {rope: self.buffers.slot(4 * rope.dim) for rope in dict.fromkeys(ropes)}
        self._slots = self._assign_slots()

    @property
    def nbytes(self) -> int:
        """Bytes allocated, scratch of the threads aside."""
        return self.buffers.nbytes + self._opened_memory.nbytes

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Keys and values that a state must hold."""
        return tuple(self._pairs)

    def pair(self, node: Node) -> int:
        """Place in `pairs` of what attention reads."""
        return self._pairs[self._pair_of(node)]

    def _pair_of(self, node: Node) -> Pair:
        """What attention reads; nodes of one form without states have the same, which lives one step."""
        states = self._cut.graph.states(node)
        sizes = {"kv_heads": node.attrs["kv_heads"], "head_dim": node.attrs["head_dim"]}
        return Pair(**sizes, keys=states.get("k"), values=states.get("v"))

    def slot(self, value: int) -> int:
        """Slot of a tensor."""
        return self._slots[value]

    def view(self, value: int) -> NDArray[Any]:
        """The rows of a tensor in its slot, ``[rows, width]``; not of one that the caller's array holds."""
        tensor = self._cut.graph.tensors[value]
        return self.buffers.view(self.slot(value), tensor.width, np.int32 if tensor.dtype == "int32" else np.float32)

    def rounding(self, matrix: Matrix) -> Rounding:
        """What a product with `matrix` rounds its activations to."""
        if matrix.form.is_integer and self._compute != "float32":
            return "int8"
        return "bfloat16" if matrix.form.name == self._compute == "bfloat16" else "float32"

    def _rounds_attention(self) -> bool:
        """Where products round to int8 or bfloat16, if the machine has products of bfloat16: else nothing is won."""
        rounds = any(self.rounding(matrix) != "float32" for matrix in self._matrices())
        return rounds and "avx512bf16" in target().features

    def opened_rooms(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Room to open the caches of sequences of so many tokens, layer by layer: address, and places in it."""
        places = [-(-count // 16) * 16 for count in tokens]
        size = sum(places) * self._opened_bytes
        if size > self._opened_memory.size:
            self._opened_memory = aligned_zeros(max(2 * self._opened_memory.size, size))
        starts = accumulate(places, initial=0)
        base = address_of(self._opened_memory)
        return [(base + start * self._opened_bytes, count) for start, count in zip(starts, places, strict=False)]

    def state_place(self, key: str) -> int:
        """Number of a state that no attention reads in a sequence's state table."""
        return len(self.pairs) + plain_states(self._cut.plan.states, self.pairs).index(key)

    def want_scratch(self, size: int) -> None:
        """Make each thread's scratch at least `size` bytes."""
        self.scratch_bytes = max(self.scratch_bytes, size + self._loop_bytes)

    def _matrices(self) -> Iterator[Matrix]:
        for node in self._cut.rows:
            if node.op in PRODUCTS:
                yield from self._weights.matrices(node)

    def _prepared_bytes(self) -> int:
        return max((prepared_bytes(m.k, self.rounding(m)) for m in self._matrices()), default=64)

    def _assign_slots(self) -> dict[int, int]:
        """A slot for each value; memory is reused once the last reader of a value is done."""
        graph, slots = self._cut.graph, {}
        last_use = {i: at for at, use in enumerate(self._cut.uses) for i in (*use.reads, *use.writes)}
        outside = set(graph.outputs) if self.writes_output else set()
        for i in graph.given:
            slots[i] = self.buffers.slot(4 * graph.tensors[i].width)
        keep = {*graph.given, *graph.outputs}
        for at, use in enumerate(self._cut.uses):
            for i in use.writes:
                slots[i] = self.buffers.outside() if i in outside else self.buffers.slot(4 * graph.tensors[i].width)
            done = {i for i in (*use.reads, *use.writes) if last_use[i] == at and i not in keep}
            self.buffers.give_back([slots[i] for i in done])
        return slots


def _attention_scratch(attends: list[Node], context: int) -> int:
    """Bytes for a piece's control block, and the sums, mixed values, rounded queries and scores of one tile of rows."""
    rows = float_tile_shape()[0]
    widest = max((-(-node.attrs["head_dim"] // 16) * 16 for node in attends), default=0)
    return BLOCK_BYTES + 64 + rows * (2 * widest + context + 32) * 4
