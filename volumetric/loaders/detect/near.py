"""Near misses: the family whose tensors are most like those of a checkpoint, and what is missing or too much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.errors import CheckpointError, VolumetricError
from volumetric.loaders import archs
from volumetric.loaders.detect import spellings
from volumetric.loaders.detect.assumptions import Assumptions
from volumetric.loaders.detect.families import CONDITIONAL, PLAIN_FIRST, blueprint_of, values_for
from volumetric.loaders.detect.values import Known
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint, fit, spelled_as
from volumetric.loaders.nearest import template
from volumetric.loaders.source import TensorSource

_ALIKE: Final = 0.6
"""Part of the names that must agree for a family to be called near."""
_LAYERS: Final = 4
"""Layers that are compared; more repeat the same names."""


def nearest(source: TensorSource, known: Mapping[str, Known], assumptions: Assumptions, where: str) -> str | None:
    """Say which family is nearest and what differs, tensor by tensor; None where none is near.

    Parameters
    ----------
    known : what names and shapes tell
    """
    if "hidden_size" not in known:
        return None
    layers = 1 + max((int(m[1]) for name in source.entries if (m := spellings.STACK.match(name))), default=0)
    more = {} if "num_hidden_layers" in known else {"num_hidden_layers": layers, "n_layer": layers}
    here = {template(name) for name in source.entries}
    wanted = assumptions.find("model_type")
    best: tuple[float, str] = (0.0, "")
    for family in [wanted] if isinstance(wanted, str) else (*PLAIN_FIRST, *archs.families()):
        values, _ = values_for(family, known, assumptions)
        few = {"num_hidden_layers": min(layers, _LAYERS), "n_layer": min(layers, _LAYERS)}
        made = _built({**values, **few}, source, where, assumptions)
        if made is None:
            continue
        there = {template(rule.source) for rule in spelled_as(source, made)}
        alike = len(here & there) / max(len(here | there), 1)
        best = max(best, (round(alike, 3), family), key=lambda one: one[0])  # of equals the plainest, which is first
    alike, family = best
    if alike < (_ALIKE if wanted is None else 0.0) or not family:
        return None
    values, _ = values_for(family, known, assumptions)
    return f"nearest is {family}, but for {_difference({**values, **more}, source, where, assumptions)}"


def _difference(values: Mapping[str, Any], source: TensorSource, where: str, assumptions: Assumptions) -> str:
    made = _built(values, source, where, assumptions)
    if made is None:
        return "a number of layers that it cannot have"
    try:
        fit(made, source)
    except CheckpointError as error:
        return str(error).partition(": ")[2]
    return "what its configuration allows"


def _built(values: Mapping[str, Any], source: TensorSource, where: str, assumptions: Assumptions) -> Blueprint | None:
    """What a family makes of values, without looking whether the tensors fit."""
    asked: set[str] = set()
    try:
        made = blueprint_of(Config(values, where, asked=asked), source)
    except (VolumetricError, ArithmeticError):
        return None
    assumptions.known |= asked | CONDITIONAL
    return made
