"""The view of a model's layers as a table: sizes, numeric types, bits per weight, and the damage of quantisation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from volumetric.generate.footprint import footprint
from volumetric.loaders import LoadedModel
from volumetric.network import Params
from volumetric.network.weight_difference import WeightDifference
from volumetric.run.lower import lower
from volumetric.run.plan import Plan, Step
from volumetric.scope.document import ScopeView
from volumetric.scope.model_parts import FAMILIES, describe_step, family_of, model_blocks, show_sizes

MAX_ROWS: Final = 1500
"""Most layers that a table lists."""
_EXPERT: Final = re.compile(r"(^|/)\d+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTable:
    """What is known of weights without reading them, and their damage where there is a reference.

    Attributes
    ----------
    params : of the model
    damage : key → estimated KL divergence in nats per token, measured when the file was made; mostly empty
    errors : key → difference from a reference, see `weight_differences`
    """

    params: Params
    damage: Mapping[str, float]
    errors: Mapping[str, tuple[WeightDifference, ...]]

    def size(self, keys: set[str]) -> dict[str, Any]:
        """Return facts of several weights together: parameters, bytes, bits per weight, dtypes, damage and error."""
        stores = [self.params[key] for key in sorted(keys) if key in self.params]
        count, size = sum(prod(store.shape) for store in stores), sum(store.nbytes for store in stores)
        by_dtype: dict[str, int] = {}
        for store in stores:
            by_dtype[str(store.scheme)] = by_dtype.get(str(store.scheme), 0) + prod(store.shape)
        known = [self.damage[key] for key in keys if key in self.damage]
        return {
            "parameters": count,
            "bytes": size,
            "bits": 8 * size / count if count else 0.0,
            "dtypes": sorted(by_dtype, key=lambda one: -by_dtype[one]),
            "damage": sum(known) if known else None,
            "error": relative_error([one for key in keys for one in self.errors.get(key, ())]),
        }


def relative_error(parts: list[WeightDifference]) -> float | None:
    """Return ``‖a − b‖ / ‖a‖`` over several weights, a being the reference; None without any."""
    total = sum(parts, WeightDifference())
    return float(total.report().nmse ** 0.5) if total.elements else None


def model_view(
    loaded: LoadedModel,
    errors: Mapping[str, tuple[WeightDifference, ...]] | None = None,
    *,
    reference: str = "",
    name: str = "model",
    label: str = "Layers",
) -> ScopeView:
    """Return the view of a model's layers. Weights are not read: sizes follow from headers.

    Parameters
    ----------
    errors : difference of each weight from a reference, of `weight_differences`; None: no column for it
    reference : name of that model
    """
    plan = lower(loaded.network)
    table = WeightTable(params=loaded.params, damage=loaded.damage, errors=errors or {})
    blocks = model_blocks(plan)
    rows: list[dict[str, Any]] = []
    first: dict[str, str] = {}
    for number, block in enumerate(blocks):
        for step in block.steps:
            if not step.params:
                continue
            keys = set(step.params.values())
            own = {key for key in keys if first.setdefault(key, step.where) == step.where}
            shared = sorted({first[key] for key in keys - own})
            rows.append(
                {
                    "where": step.where,
                    "block": number,
                    "what": describe_step(step),
                    "family": FAMILIES.index(family_of(step, block)),
                    "shared": shared,
                    **table.size(own),
                    "tensors": _tensors(step, plan, loaded.params, own),
                }
            )
    rows.sort(key=lambda row: -row["bytes"])
    left_out, rows = rows[MAX_ROWS:], rows[:MAX_ROWS]
    rows.sort(key=lambda row: row["block"])
    whole = footprint(loaded.params)
    data = {
        "title": loaded.name,
        "path": str(loaded.path),
        "architecture": str(loaded.config.get("model_type", "")),
        "blocks": [block.label for block in blocks],
        "families": FAMILIES,
        "rows": rows,
        "leftOut": {"layers": len(left_out), "bytes": sum(row["bytes"] for row in left_out)},
        "total": {
            "parameters": whole.elements,
            "bytes": whole.nbytes,
            "bits": whole.bits_per_weight,
            "error": relative_error([one for parts in table.errors.values() for one in parts]),
            "damage": sum(loaded.damage.values()) if loaded.damage else None,
        },
        "schemes": {str(scheme): count for scheme, count in whole.schemes.items()},
        "reference": reference,
        "context": loaded.context_length,
    }
    return ScopeView(kind="model", name=name, label=label, data=data)


def _tensors(step: Step, plan: Plan, params: Params, own: set[str]) -> list[dict[str, Any]]:
    """Return the weights of a layer, those of equal experts together."""
    groups: dict[tuple[str, ...], int] = {}
    for role, key in step.params.items():
        scheme = str(params[key].scheme) if key in params else "missing"
        shape = show_sizes(plan.params[key])
        text = _EXPERT.sub(r"\1*/", role), shape, scheme, "" if key in own else key.rpartition("/")[0]
        groups[text] = groups.get(text, 0) + 1
    return [
        {"role": role, "shape": shape, "dtype": scheme, "shared": shared, "count": count}
        for (role, shape, scheme, shared), count in groups.items()
    ]
