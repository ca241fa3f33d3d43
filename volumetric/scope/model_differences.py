"""How far the weights of a model are from those of another, weight by weight and head by head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.dtypes import decode
from volumetric.layers import MultiHeadAttention
from volumetric.network import Params
from volumetric.network.weight_difference import WeightDifference
from volumetric.run.plan import Plan

_PIECE: Final = 1 << 22
"""Elements that are decoded at a time."""


def weight_differences(plan: Plan, params: Params, reference: Params) -> dict[str, tuple[WeightDifference, ...]]:
    """Return the difference of each weight from that of the same name and shape in a reference.

    Both are read once, in parts. Queries, keys and values of attention have one difference for each head.

    Raises
    ------
    SpecError : the models have no weight of the same name and shape
    """
    heads: dict[str, int] = {}
    for step in plan.steps:
        spec = step.attrs.get("spec")
        if isinstance(spec, MultiHeadAttention):
            heads |= {step.params[f"{part}.weight"]: spec.width for part in "qkv"}
    differences: dict[str, tuple[WeightDifference, ...]] = {}
    for key in dict.fromkeys(key for step in plan.steps for key in step.params.values()):
        if key not in params or key not in reference or params[key].shape != reference[key].shape:
            continue
        differences[key] = _difference(key, params, reference, heads.get(key))
    if not differences:
        raise SpecError(
            "the two models have no weight of the same place and shape",
            hint="compare versions of one model: before and after training, or two numeric types",
        )
    return differences


def _difference(key: str, params: Params, reference: Params, rows: int | None) -> tuple[WeightDifference, ...]:
    mine, theirs = params[key], reference[key]
    if mine.ndim < 2:
        return (WeightDifference.between(theirs.values(), mine.values()),)
    step = rows or max(1, _PIECE // mine.shape[-1])
    pairs = zip(theirs.row_blocks(step), mine.row_blocks(step), strict=True)
    parts = tuple(WeightDifference.between(decode(a, np.float32), decode(b, np.float32)) for a, b in pairs)
    for store in (mine, theirs):
        store.release()
    return parts if rows else (sum(parts, WeightDifference()),)


def by_head(differences: Mapping[str, tuple[WeightDifference, ...]], key: str, head: int) -> list[WeightDifference]:
    """Return the difference of a head's rows of a weight, as a list that is empty where nothing is known."""
    parts = differences.get(key, ())
    return [parts[head]] if head < len(parts) else []
