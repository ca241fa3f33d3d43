"""Step builder of row operations: arguments are slots, which are indices of tensors; sizes are those of one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from volumetric.devices.cpu.kernels.mixtures.each_expert import EXPERT_BLOCK_BYTES
from volumetric.devices.cpu.kernels.operations import ROWS
from volumetric.devices.cpu.kernels.products import VECTOR_ROWS
from volumetric.devices.cpu.kernels.ragged import BLOCK_BYTES, EACH_SEQUENCE_ARGUMENTS
from volumetric.devices.cpu.kernels.run_table import LOOP_ARGUMENTS
from volumetric.devices.cpu.kv_cache import KvPair
from volumetric.devices.cpu.row_settings import RowSettings
from volumetric.devices.cpu.step_builder import Argument, LoweringRules, OperationStep, StepBuilder, TensorAddress
from volumetric.graph.numeric.rope import Rope
from volumetric.graph.ops import Node

Form = Literal["few", "some", "many"]

Mode = tuple[Form, Form]
"""Forms of the products before the tail and in it: *few* for up to `VECTOR_ROWS` rows (decoding), *some* for up to
`RowSettings.direct_rows`, and *many* with unpacked panels. Results are the same."""


DECODING: Mode = ("few", "few")


def form_of(rows: int, settings: RowSettings) -> Form:
    """Return the form of products for a number of rows."""
    return "few" if rows <= VECTOR_ROWS else "some" if rows <= settings.direct_rows else "many"


rule: LoweringRules = LoweringRules()
"""Operation → function that appends its steps; the modules of this package register theirs."""


class RowStepBuilder(StepBuilder):
    """Steps of a network's row operations in one mode.

    Attributes
    ----------
    angles : slot of the rotary angles of each kind
    ends : number of steps after each of `Partition.uses`
    opened : the bfloat16 copy of a cache, which all layers write in turn
    """

    def __init__(self, settings: RowSettings, mode: Mode) -> None:
        super().__init__(settings.graph, ROWS)
        self.settings = settings
        self.mode = mode
        self.sizes = [*(max(4 * tensor.width, 64) for tensor in self.graph.tensors), 8]  # the last: `settings.tokens`
        self.angles: dict[Rope, int] = {}
        self.ends: list[int] = []
        self.opened: int = self.temporary(64)
        self._caches: dict[KvPair, int] = {}
        self._widths: dict[int, int] = {}

    @property
    def inputs(self) -> tuple[int, ...]:
        """Inputs of a call."""
        return self.graph.caller_inputs

    @property
    def outputs(self) -> tuple[int, ...]:
        """Outputs of the network, and its inputs, so that a run can be repeated."""
        return *self.graph.caller_inputs, *self.graph.outputs

    def roots(self) -> list[int]:
        """Each tensor maps to itself: views occur only in segments that do not run on rows, and these copy."""
        return list(range(len(self.graph.tensors)))

    def want_scratch(self, size: int) -> None:
        """Make each thread's scratch at least `size` bytes, after the control block of a sequence, loop or expert."""
        super().want_scratch(size + max(BLOCK_BYTES, EXPERT_BLOCK_BYTES))

    def argument(self, place: int | TensorAddress | None) -> Argument:
        """The slot of a tensor, -1 for none."""
        return -1 if place is None else place

    def value(self, width: int) -> int:
        """Return a new value with so many elements in a row, which nodes created here can name."""
        value = self.temporary(max(4 * width, 64))
        self._widths[value] = width
        return value

    def width(self, tensor: int) -> int:
        """Elements in a row."""
        return self._widths.get(tensor) or self.graph.tensors[tensor].width

    def form(self, node: Node) -> Form:
        """Form of the products."""
        return self.mode[node.tail]

    def cache(self, pair: KvPair) -> int:
        """Return the tensor of a layer's keys and values, which steps write and read."""
        if pair not in self._caches:
            self._caches[pair] = self.temporary(64)
        return self._caches[pair]

    def add_by_rows(
        self,
        name: str,
        names: Sequence[str],
        node: Node,
        /,
        *constants: int | str,
        over: Sequence[int] = (),
        **arguments: Any,
    ) -> None:
        """Append a step whose threads divide the rows of all values; it may overwrite one of `over`."""
        own = [i for i in node.inputs if i in self._widths]
        reads = (*own, *self.graph.values(i for i in node.inputs if i not in self._widths))
        more: dict[str, Any] = {"writes": node.outputs[:1], "reads": reads}
        more |= {"over": tuple(i for i in over if i in reads), "flat": "tail" if node.tail else "rows"}
        self.add(name, names, *constants, shared=(*reads, node.outputs[0]), tail=node.tail, **arguments, **more)

    def add_each_sequence(
        self, few: OperationStep | None, many: OperationStep | None, *, reads: Sequence[int], writes: Sequence[int]
    ) -> None:
        """Append a step that runs others for each sequence, with few rows or many."""
        arguments = {"few": few or 0, "many": many or 0}
        self.add("each_piece", EACH_SEQUENCE_ARGUMENTS, reads=reads, writes=writes, **arguments)

    def loop_over_time(self, first: int, note: str) -> None:
        """Make the steps from number `first` on the body of a loop over time."""
        self.nest_steps("loop", LOOP_ARGUMENTS, first, note=note)
