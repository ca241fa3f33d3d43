"""Where everything lies that a program touches besides its weights: values, shared rows, caches, scratch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from volumetric.errors import GenerationError
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
from volumetric.runtime.plan import Plan, Step
from volumetric.runtime.state import ids_of


class Layout:
    """Memory of a plan.

    Attributes
    ----------
    buffers : rows of values
    prepared, queries : slots of the rows that products and attention share among threads
    hidden, held, from_hidden : slots of what a recurrent cell has for each piece: h, c and the product with h
    rounds_attention : attention multiplies in bfloat16
    angles : slot of the rotary angles of each kind
    scratch_bytes : scratch of one thread; grows as operations are added
    chunked : a call may be cut into chunks of rows
    writes_output : the last step writes straight into the caller's array
    output_in_tail : the output can be computed for the last row alone
    output_width : numbers in a row of the output
    vocabulary : ids below this have a row in every embedding that reads the input
    """

    def __init__(self, plan: Plan, weights: ResidentWeights, *, compute: Rounding, context: int) -> None:
        self._plan = plan
        self._weights = weights
        self._compute: Rounding = compute
        attends = [step for step in plan.steps if step.op == "attend"]
        self.buffers = Buffers()
        cells = [step for step in plan.steps if step.op == "recurrence"]
        self._loop_bytes = BLOCK_BYTES if cells else 0
        units = max((plan.values[step.outputs[0]].width for step in cells), default=0)
        self.hidden, self.held = self.buffers.slot(4 * units), self.buffers.slot(4 * units)
        self.from_hidden = self.buffers.slot(max((4 * plan.values[s.inputs[0]].width for s in cells), default=0))
        self._pairs = {pair: i for i, pair in enumerate(dict.fromkeys(map(_pair_of, attends)))}
        self.chunked = all(step.attrs["causal"] and step.states for step in attends)
        self.scratch_bytes = _attention_scratch(attends, context)
        out = plan.outputs[0]
        made_by = [step for step in plan.steps if out in step.outputs]
        # A product stores its last columns one by one; other operations store whole vectors, beyond the row's end.
        self.output_in_tail = bool(made_by) and made_by[0].tail
        self.writes_output = self.output_in_tail and made_by[0].op == "matmul" and not list(plan.consumers(out))
        self.output_width = plan.values[out].width
        tables = [step for step in plan.steps if step.op == "embedding" and step.inputs[0] in plan.inputs]
        self.vocabulary = min((ids_of(plan, step) for step in tables), default=0)
        self._positions = [
            plan.params[step.params["weight"]][0] - step.attrs["offset"]
            for step in plan.steps
            if step.op == "position_embedding"
        ]
        # Before the values': a slot that comes later may get the buffer of a value that is read no more.
        self.prepared = self.buffers.slot(self._prepared_bytes())
        self.queries = self.buffers.slot(
            max((4 * step.attrs["heads"] * step.attrs["head_dim"] for step in attends), default=64)
        )
        self._opened_bytes = max(
            (opened_bytes(step.attrs["kv_heads"], step.attrs["head_dim"]) for step in attends), default=0
        )
        self._opened_memory = aligned_zeros(0)
        self.rounds_attention = self._rounds_attention()
        ropes: list[Rope] = [step.attrs["rope"] for step in attends if step.attrs["rope"] is not None]
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

    def pair(self, step: Step) -> int:
        """Place in `pairs` of what an attention step reads."""
        return self._pairs[_pair_of(step)]

    def slot(self, value: int) -> int:
        """Slot of a value of the plan."""
        return self._slots[value]

    def rounding(self, matrix: Matrix) -> Rounding:
        """What a product with `matrix` rounds its activations to."""
        if matrix.form.is_integer and self._compute != "float32":
            return "int8"
        return "bfloat16" if matrix.form.name == self._compute == "bfloat16" else "float32"

    def _rounds_attention(self) -> bool:
        """Where products round to int8 or bfloat16, if the machine has products of bfloat16: else nothing is won."""
        products = [step for step in self._plan.steps if step.op in PRODUCTS]
        matrices = [matrix for step in products for matrix in self._weights.matrices(step)]
        rounds = any(self.rounding(matrix) != "float32" for matrix in matrices)
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
        return len(self.pairs) + plain_states(self._plan.states, self.pairs).index(key)

    def want_scratch(self, size: int) -> None:
        """Make each thread's scratch at least `size` bytes."""
        self.scratch_bytes = max(self.scratch_bytes, size + self._loop_bytes)

    def check_positions(self, tokens: int) -> None:
        """Raise `GenerationError` if `tokens` tokens are more than a table of learned positions has."""
        for positions in self._positions:
            if tokens > positions:
                raise GenerationError(
                    f"{tokens} tokens exceed the {positions} positions that the model has learned",
                    hint="shorten the prompt or generate fewer tokens",
                )

    def _prepared_bytes(self) -> int:
        products = [step for step in self._plan.steps if step.op in PRODUCTS]
        matrices = [matrix for step in products for matrix in self._weights.matrices(step)]
        sizes = [prepared_bytes(m.k, self.rounding(m)) for m in matrices]
        return max(sizes, default=64)

    def _assign_slots(self) -> dict[int, int]:
        """A slot for each value; memory is reused once the last reader of a value is done."""
        plan, slots = self._plan, {}
        last_use = {i: at for at, step in enumerate(plan.steps) for i in (*step.inputs, *step.outputs)}
        outside = {plan.outputs[0]} if self.writes_output else set()
        for i in plan.inputs:
            slots[i] = self.buffers.slot(4 * plan.values[i].width)
        keep = {*plan.inputs, *plan.outputs}
        for at, step in enumerate(plan.steps):
            for i in step.outputs:
                slots[i] = self.buffers.outside() if i in outside else self.buffers.slot(4 * plan.values[i].width)
            done = {i for i in (*step.inputs, *step.outputs) if last_use[i] == at and i not in keep}
            self.buffers.give_back([slots[i] for i in done])
        return slots


def _pair_of(step: Step) -> Pair:
    """What an attention step reads; steps of one form without states have the same, which lives one step."""
    sizes = {"kv_heads": step.attrs["kv_heads"], "head_dim": step.attrs["head_dim"]}
    return Pair(**sizes, keys=step.states.get("k"), values=step.states.get("v"))


def _attention_scratch(attends: list[Step], context: int) -> int:
    """Bytes for a piece's control block, and the sums, mixed values, rounded queries and scores of one tile of rows."""
    rows = float_tile_shape()[0]
    widest = max((-(-step.attrs["head_dim"] // 16) * 16 for step in attends), default=0)
    return BLOCK_BYTES + 64 + rows * (2 * widest + context + 32) * 4
