"""Guards: which workgroups of a product end at once, before they have read any weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from volumetric.devices.gpu.kernels.dispatch import Constant, ceil_div

MOST_BUFFERS = 9
"""Storage buffers of a guarded `gemm`; devices that bind fewer compute all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What tells that rows of a product are not wanted.

    Attributes
    ----------
    prelude : text with ``is_idle``
    constants : what it reads
    """

    prelude: str
    constants: Mapping[str, Constant] = field(default_factory=lambda: MappingProxyType({}))

    def over(self, rows: int) -> dict[str, Constant]:
        """Constants of the guard where a workgroup has so many rows."""
        return {**self.constants, "GUARDED": rows} if self is not NONE else {}


NONE = Guard(prelude="guard/none")
STEPS = Guard(prelude="guard/steps")
"""Of pieces that have no row of the step that is made."""

PARTS = Guard(prelude="guard/parts")
"""Of parts of a result whose flag is 0. Another buffer: fires."""


def column(width: int, number: int) -> Guard:
    """Of rows that have a 0 in this column of a gate's weights, rows of `width`. Another buffer: gate."""
    constants = MappingProxyType({"GATE_STRIDE": 4 * ceil_div(width, 4), "GATE_COLUMN": number})
    return Guard(prelude="guard/column", constants=constants)
