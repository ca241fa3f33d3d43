"""Stacks: selection of one of several matrices, and of rows, for each workgroup of a product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from volumetric.devices.gpu.kernels.dispatch import Constant, WorkgroupGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixStack:
    """Selects the rows and matrices of a product.

    Attributes
    ----------
    prelude : shader text with ``x_row``, ``factor_of``, ``placed``, ``bias_at``, ``residual_at``, and ``share_of``
        unless the rows of the call are divided in order
    constants : constants of the prelude
    times : rows of the product for each row of the call; 0: they are divided in order
    extra : possible further blocks of rows that are not full
    """

    prelude: str
    constants: Mapping[str, Constant] = field(default_factory=lambda: MappingProxyType({}))
    times: int = 0
    extra: int = 0

    def preludes(self, share: str) -> tuple[str, ...]:
        """Shader files: the stack's, and `share` for stacks that divide rows in order."""
        return (self.prelude,) if self.times else (share, self.prelude)

    def grid(self, groups: int, batch: int) -> WorkgroupGrid | None:
        """`groups` of outputs for each block of `batch` rows; None if rows are divided in order."""
        return WorkgroupGrid(x=groups, rows_each=batch, times=self.times, extra=self.extra) if self.times else None


ONE = MatrixStack(prelude="stack/one")
"""One matrix for all rows. Other buffers: residual."""


def pair_stack(slots: int) -> MatrixStack:
    """A matrix for each row and slot, selected by `choose`. Another buffer: chosen."""
    return MatrixStack(prelude="stack/pairs", constants=MappingProxyType({"SLOTS": slots}), times=slots)


def branch_stack(slots: int) -> MatrixStack:
    """The matrices of all slots of a row at once, for x of `Slots`. Other buffers: residual, chosen."""
    return MatrixStack(prelude="stack/slots", constants=MappingProxyType({"SLOTS": slots}), times=1)
