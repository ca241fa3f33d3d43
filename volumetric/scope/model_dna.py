"""The view of the difference of two models: DNA layer by layer as a tower, and each weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.evolution.dna import DNA, extract_dna
from volumetric.evolution.dna_comparison import Comparison, compare
from volumetric.generate.footprint import footprint
from volumetric.loaders import LoadedModel
from volumetric.network.weight_difference import WeightDifference
from volumetric.run.lower import lower
from volumetric.scope.document import ScopeView
from volumetric.scope.model_parts import FAMILIES, describe_kind, describe_step, family_of, model_blocks

MAX_CELLS: Final = 3000
"""Most layers that the tower shows."""


def dna_view(
    first: LoadedModel,
    second: LoadedModel,
    differences: Mapping[str, tuple[WeightDifference, ...]] | None = None,
    *,
    name: str = "dna",
    label: str = "Difference",
) -> ScopeView:
    """Return the view of the similarity of two models by DNA, whatever their numeric types. Reads all weights of both.

    Parameters
    ----------
    differences : of each weight, of `weight_differences` with the first model as the reference; None: similarities only

    Raises
    ------
    VolumetricError : a weight is not finite
    """
    signatures = [extract_dna(one.network, one.params) for one in (first, second)]
    comparison = compare(*signatures)
    cells, blocks = _cells(first, signatures[0], comparison)
    total = len(cells)
    if total > MAX_CELLS:  # those that differ most
        cells = sorted(cells, key=lambda cell: 1.0 if cell["similarity"] is None else cell["similarity"])[:MAX_CELLS]
        cells.sort(key=lambda cell: cell["block"])
    data = {
        "first": titled(first),
        "second": titled(second),
        "overall": comparison.overall,
        "blocks": blocks,
        "families": FAMILIES,
        "cells": cells,
        "leftOut": total - len(cells),
        "shifts": [{"source": s.source, "target": s.target, "similarity": s.overlap} for s in comparison.shifts[:200]],
        "onlyFirst": list(comparison.only_a[:200]),
        "onlySecond": list(comparison.only_b[:200]),
        "only": [len(comparison.only_a), len(comparison.only_b)],
        "weights": _weights(differences or {}),
    }
    return ScopeView(kind="dna", name=name, label=label, data=data)


def titled(model: LoadedModel) -> str:
    """Return the name of a model with the numeric type of most of its weights."""
    return f"{model.name} ({footprint(model.params).dtype})"


def _cells(model: LoadedModel, dna: DNA, comparison: Comparison) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the compared layers with their places in the tower, and the labels of its floors."""
    blocks = model_blocks(lower(model.network))
    steps = {step.where: (number, step, block) for number, block in enumerate(blocks) for step in block.steps}
    cells: list[dict[str, Any]] = []
    for path, signature in dna.signatures.items():
        if path not in comparison.overlaps and path not in comparison.only_a:
            continue
        where = path
        while where not in steps and "/" in where:  # a part of a mixture of experts
            where = where.rpartition("/")[0]
        number, step, block = steps.get(where, (0, None, blocks[0]))
        family = "other" if step is None else family_of(step, block)
        what = describe_kind(signature.kind) if step is None or where != path else describe_step(step)
        cells.append(
            {
                "path": path,
                "block": number,
                "column": where.partition("/")[0].rpartition(".")[2],
                "family": FAMILIES.index(family),
                "what": what,
                "similarity": comparison.overlaps.get(path),
            }
        )
    return cells, [block.label for block in blocks]


def _weights(differences: Mapping[str, tuple[WeightDifference, ...]]) -> dict[str, Any]:
    """Return how far each weight is from the reference: those that are farthest first, at most 2,000."""
    reports = {key: sum(parts, WeightDifference()).report() for key, parts in differences.items()}
    keys = sorted(reports, key=lambda key: -reports[key].nmse)[:2000]
    return {
        "keys": keys,
        "error": np.array([reports[key].nmse ** 0.5 for key in keys], np.float32),
        "cosine": np.array([reports[key].cosine for key in keys], np.float32),
        "largest": np.array([reports[key].max_abs for key in keys], np.float32),
        "elements": np.array([sum(p.elements for p in differences[key]) for key in keys], np.float64),
        "leftOut": len(reports) - len(keys),
    }
