"""Kernels without weight matrices: norm, softmax, joins, maps, embeddings, argmax."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import Constant, Dispatch, WorkgroupGrid, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.matmul import bounds
from volumetric.devices.gpu.kernels.weight_formats import WeightFormat

_GROUP = 128
MIXED = 4
"""Branches summed by one launch of `mix`."""
ARGMAX_GROUPS = 64
"""Workgroups per row of the first argmax launch; the second has one per row for their maxima."""


def norm(*, width: int, groups: int, kind: str, eps: float, unit_offset: bool, weight: bool, bias: bool) -> Dispatch:
    """Norm of `groups` parts of `width` elements each. Buffers: x, norm_params, y."""
    constants: dict[str, Constant] = {
        "WG": _GROUP,
        "WIDTH": width,
        "GROUPS": groups,
        "NORM": {"rms": 1, "layer": 2}[kind],
        "EPS": float(eps),
        "NORM_UNIT": 1.0 if unit_offset else 0.0,
        "HAS_NORM_WEIGHT": weight,
        "HAS_NORM_BIAS": bias,
    }
    return Dispatch(kernel="norm", grid=WorkgroupGrid(x=groups, rows_each=1), constants=constants)


def softmax(*, width: int) -> Dispatch:
    """Softmax over rows of `width`. Buffers: x, y."""
    constants: dict[str, Constant] = {"WG": _GROUP, "WIDTH": width}
    return Dispatch(kernel="softmax", grid=WorkgroupGrid(x=1, rows_each=1), constants=constants)


def unary(*, width: int, name: str, alpha: float = 1.0, beta: float = 0.0) -> Dispatch:
    """Function of each element. Buffers: x, y, ctl."""
    width4 = ceil_div(width, 4)
    return Dispatch(
        kernel="map",
        grid=WorkgroupGrid(x=ceil_div(width4, _GROUP), rows_each=1),
        constants={"WG": _GROUP, "WIDTH4": width4, "ALPHA": float(alpha), "BETA": float(beta)},
        preludes=(f"unary/{name}",),
    )


def binary(*, width: int, name: str) -> Dispatch:
    """Function of pairs of elements. Buffers: a, b, y, ctl."""
    width4 = ceil_div(width, 4)
    return Dispatch(
        kernel="join",
        grid=WorkgroupGrid(x=ceil_div(width4, _GROUP), rows_each=1),
        constants={"WG": _GROUP, "WIDTH4": width4},
        preludes=(f"graph/binary/{name}",),
    )


def gated_activation(*, width: int, activation: str, limit: float | None = None, up_offset: float = 0.0) -> Dispatch:
    """Activation of one value times another, bounded by `limit` if there is one. Buffers: x, factor, y, ctl."""
    width4 = ceil_div(width, 4)
    return Dispatch(
        kernel="gated",
        grid=WorkgroupGrid(x=ceil_div(width4, _GROUP), rows_each=1),
        constants={"WG": _GROUP, "WIDTH4": width4, **bounds(limit, up_offset)},
        preludes=(f"unary/{activation}", "bounded"),
    )


def keep_largest(*, width: int, count: int) -> Dispatch:
    """The largest elements of each row, -inf for the others. Buffers: x, y."""
    return Dispatch(
        kernel="keep_largest",
        grid=WorkgroupGrid(x=1, rows_each=1),
        constants={"WG": min(_GROUP, power_of_two(max(width, 32))), "WIDTH": width, "KEEP": count},
        preludes=("order",),
    )


def mix(*, width: int, branches: int, first: int, count: int, weighted: bool = True) -> Dispatch:
    """Weighted sum of branches `first` … `first + count`, up to `MIXED`, of a gate; added to y unless `first` is 0.

    Without `weighted`, branches with a nonzero weight are summed unscaled.

    Buffers: weights, branch_0 … branch_3, y, ctl.
    """
    width4 = ceil_div(width, 4)
    constants: dict[str, Constant] = {
        "WG": _GROUP,
        "WIDTH4": width4,
        "GATE_STRIDE": 4 * ceil_div(branches, 4),
        "FIRST": first,
        "COUNT": count,
        "WEIGHTED": weighted,
    }
    return Dispatch(kernel="mix", grid=WorkgroupGrid(x=ceil_div(width4, _GROUP), rows_each=1), constants=constants)


def concat(*, width: int, at: int, out_width: int) -> Dispatch:
    """Copy a value into columns `at` … of a wider one. Buffers: x, y, ctl."""
    constants: dict[str, Constant] = {
        "WG": _GROUP,
        "WIDTH": width,
        "FROM": 0,
        "AT": at,
        "X_STRIDE": ceil_div(width, 4) * 4,
        "Y_STRIDE": ceil_div(out_width, 4) * 4,
    }
    return Dispatch(kernel="concat", grid=WorkgroupGrid(x=ceil_div(width, _GROUP), rows_each=1), constants=constants)


def columns(*, width: int, start: int, of_width: int) -> Dispatch:
    """Copy columns `start` … of a wider value. Buffers: x, y, ctl."""
    constants: dict[str, Constant] = {
        "WG": _GROUP,
        "WIDTH": width,
        "FROM": start,
        "AT": 0,
        "X_STRIDE": ceil_div(of_width, 4) * 4,
        "Y_STRIDE": ceil_div(width, 4) * 4,
    }
    return Dispatch(kernel="concat", grid=WorkgroupGrid(x=ceil_div(width, _GROUP), rows_each=1), constants=constants)


def embedding(*, width: int, layout: WeightFormat, scale: float, first: int, units: int) -> Dispatch:
    """Rows of a table by id, from the shard that holds rows `first` … `first + units`.

    Buffers: ids, weights, scales, y, ctl.
    """
    return Dispatch(
        kernel="embedding",
        grid=WorkgroupGrid(x=ceil_div(ceil_div(width, 4), _GROUP), rows_each=1),
        constants=_table(width, layout) | {"SCALE": float(scale)},
        preludes=layout.preludes,
        args=(first, units),
    )


def position_embedding(*, width: int, layout: WeightFormat, offset: int, limit: int) -> Dispatch:
    """Add rows of a table by position. Buffers: x, weights, scales, y, ctl."""
    return Dispatch(
        kernel="position_embedding",
        grid=WorkgroupGrid(x=ceil_div(ceil_div(width, 4), _GROUP), rows_each=1),
        constants=_table(width, layout) | {"OFFSET": offset, "LIMIT": limit},
        preludes=layout.preludes,
    )


def _table(width: int, layout: WeightFormat) -> dict[str, Constant]:
    return {"WG": _GROUP, "K": width, "PIECES": layout.pieces(width), "GROUPS": layout.groups(width)}


def argmax(*, width: int, final: bool) -> Dispatch:
    """One of the two launches of the argmax of each row. Buffers: x and winners, or winners, token, control."""
    return Dispatch(
        kernel="argmax",
        grid=WorkgroupGrid(x=1 if final else ARGMAX_GROUPS, rows_each=1),
        constants={"WG": _GROUP, "WIDTH": width, "PARTIAL": ARGMAX_GROUPS, "FINAL": final},
    )


def copy_pages(vectors: int) -> Dispatch:
    """Copy pages of `vectors` 16-byte words within a buffer; each row of the call is a page. Buffers: pages, moves."""
    return Dispatch(
        kernel="copy_pages",
        grid=WorkgroupGrid(x=ceil_div(vectors, _GROUP), rows_each=1),
        constants={"WG": _GROUP, "VECTORS": vectors},
    )
