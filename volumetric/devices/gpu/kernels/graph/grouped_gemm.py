"""Sizes of products of groups of matrices, and tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweringRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmTile:
    """A workgroup's share, `m` x `n` dot products in steps of `k`, and an invocation's, `rows` x `columns` of them."""

    m: int
    n: int
    k: int
    rows: int
    columns: int

    @property
    def workgroup(self) -> int:
        """Invocations."""
        return self.m // self.rows * (self.n // self.columns)

    @property
    def shared(self) -> int:
        """Bytes of workgroup memory."""
        return 16 * self.k * (self.m // 4 + self.n // 4 + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm:
    """Sizes of a product of groups: `groups` results, each the sum of `sums` products m x k times k x n."""

    m: int
    n: int
    k: int
    a_groups: int
    b_groups: int
    groups: int
    sums: int

    def tiles(self, tile: GroupedGemmTile) -> int:
        """Workgroups without splitting."""
        return ceil_div(self.m, tile.m) * ceil_div(self.n, tile.n) * self.groups

    def waste(self, tile: GroupedGemmTile) -> float:
        """Computed elements per useful element."""
        return self.tiles(tile) * tile.m * tile.n / max(self.m * self.n * self.groups, 1)

    def steps(self, tile: GroupedGemmTile) -> int:
        """Tiles of k per result."""
        return ceil_div(self.k, tile.k) * self.sums


def product_of(request: LoweringRequest) -> GroupedGemm:
    """Return the sizes of a product from the shapes of its tensors."""
    right = request.attrs.get("columns", request.inputs[1])
    return sizes_of(request.inputs[0], right, request.outputs[0], request.attrs)


def sizes_of(a: Shape, b: Shape, c: Shape, attrs: Mapping[str, Any]) -> GroupedGemm:
    """Return the sizes of a product of tensors with these shapes."""
    (ga, rows, columns), gb, (groups, m, n) = a, b[0], c
    k = rows if attrs["trans_a"] else columns
    most = max(ga, gb, groups) if ga and gb else 0
    return GroupedGemm(m=m, n=n, k=k, a_groups=ga, b_groups=gb, groups=groups, sums=most // groups if groups else 0)
