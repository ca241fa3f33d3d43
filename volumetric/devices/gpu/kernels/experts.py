"""Kernels around the products of a mixture of experts: the choice, grouping of rows by expert, and their sum."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from volumetric.devices.gpu.kernels.dispatch import Constant, Dispatch, WorkgroupGrid, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.matrix_stacks import MatrixStack

SCORINGS = MappingProxyType({"given": 0, "largest": 1, "softmax": 2, "softmax_all": 3})
_GROUP = 128


def choose_experts(*, count: int, keep: int, scoring: str) -> Dispatch:
    """The experts of each row and their weights. Buffers: choice, chosen (8 bytes for each slot of a row)."""
    return Dispatch(
        kernel="choose",
        grid=WorkgroupGrid(x=1, rows_each=1),
        constants={
            "WG": min(_GROUP, power_of_two(max(count, 32))),
            "COUNT": count,
            "KEEP": keep,
            "SCORING": SCORINGS[scoring],
        },
        preludes=("order",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRoutes:
    """Rows of up to `pairs` pairs of a row and an expert in the order of experts, for two successive products.

    Attributes
    ----------
    experts, slots : number of experts, and experts of a row
    pairs : maximum number of pairs
    each : rows of a block, of each product
    """

    experts: int
    slots: int
    pairs: int
    each: tuple[int, int]

    def starts(self) -> tuple[int, int, int]:
        """Offsets in words of the first list of blocks, of the second, and of the end."""
        first = 3 * self.pairs
        second = first + 4 * self._blocks(self.each[0])
        return first, second, second + 4 * self._blocks(self.each[1])

    @staticmethod
    def most_bytes(experts: int, pairs: int) -> int:
        """Bytes sufficient for any block size."""
        return 4 * (3 * pairs + 8 * (pairs + experts))

    def group(self) -> Dispatch:
        """Group the rows by expert. Buffers: chosen, routes, ctl."""
        first, second, _ = self.starts()
        constants: dict[str, Constant] = {
            "WG": _GROUP,
            "EXPERTS": self.experts,
            "SLOTS": self.slots,
            "PAIRS": self.pairs,
            "FIRST_AT": first,
            "FIRST_EACH": self.each[0],
            "SECOND_AT": second,
            "SECOND_EACH": self.each[1],
        }
        return Dispatch(kernel="group_rows", grid=WorkgroupGrid(x=self.experts), constants=constants)

    def stack(self, product: int) -> MatrixStack:
        """Row lookup of the first or the second product. Another buffer: routes."""
        constants = {"PAIRS": self.pairs, "BLOCKS_AT": self.starts()[product], "GATHERED": product == 0}
        return MatrixStack(
            prelude="stack/grouped", constants=MappingProxyType(constants), times=self.slots, extra=self.experts
        )

    def collect(self, *, width: int, residual: bool) -> Dispatch:
        """Sum the experts' results of each row. Buffers: routes, parts, residual, y, ctl."""
        width4 = ceil_div(width, 4)
        constants: dict[str, Constant] = {
            "WG": _GROUP,
            "WIDTH4": width4,
            "SLOTS": self.slots,
            "PAIRS": self.pairs,
            "HAS_RESIDUAL": residual,
        }
        return Dispatch(
            kernel="collect", grid=WorkgroupGrid(x=ceil_div(width4, _GROUP), rows_each=1), constants=constants
        )

    def _blocks(self, each: int) -> int:
        return ceil_div(self.pairs, each) + self.experts
