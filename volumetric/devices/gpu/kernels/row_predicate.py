"""Predicates: workgroups of a product that end at once, before reading any weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from volumetric.devices.gpu.kernels.dispatch import Constant, ceil_div

MOST_BUFFERS = 9
"""Storage buffers of a `gemm` with a predicate; devices that bind fewer compute all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPredicate:
    """Predicate that marks rows of a product as unused.

    Attributes
    ----------
    prelude : shader text with ``is_idle``
    constants : constants of the prelude
    """

    prelude: str
    constants: Mapping[str, Constant] = field(default_factory=lambda: MappingProxyType({}))

    def over(self, rows: int) -> dict[str, Constant]:
        """Constants of the predicate for workgroups with so many rows."""
        return {**self.constants, "GUARDED": rows} if self is not NONE else {}


NONE = RowPredicate(prelude="guard/none")
STEPS = RowPredicate(prelude="guard/steps")
"""Predicate for sequences without a row in the current step."""

PARTS = RowPredicate(prelude="guard/parts")
"""Predicate for parts of a result whose flag is 0. Another buffer: fires."""


def column(width: int, number: int) -> RowPredicate:
    """Predicate for rows with a 0 in this column of a gate's weights, rows of `width`. Another buffer: gate."""
    constants = MappingProxyType({"GATE_STRIDE": 4 * ceil_div(width, 4), "GATE_COLUMN": number})
    return RowPredicate(prelude="guard/column", constants=constants)
