"""Learning recipes: regions' own losses, in addition to the task's loss.

Each is a number for each stream and step; a layer adds the sum over all steps, times its weight, to the sum of the
task's terms. A region has losses if `Region.learning` is set; `learning_of` returns the recipe for a family.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.counter_noise import stream_of
from volumetric.layers.dense import affine_params
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.carriers import norm_params
from volumetric.program.layer.name_checks import MODES
from volumetric.program.layer.ports import Level
from volumetric.program.layer.program_facts import METERED, Facts, Place
from volumetric.program.layer.region_learning import Learning, Mode

OF_MODE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "supervised": (),
        "ssl_prediction": ("next_step", "masked_prediction"),
        "posterior_match": ("predictive_consistency", "calibration"),
        "retrieval": ("retrieval_accuracy", "write_utility"),
        "calibration": ("calibration", "sparsity"),
        "none": (),
    }
)
"""Mode → its losses, in addition to that of the network."""
OF_FAMILY: Final[Mapping[str, Mode]] = MappingProxyType(
    {
        "observation": "ssl_prediction",
        "state": "posterior_match",
        "memory": "retrieval",
        "residual": "calibration",
        "action": "supervised",
    }
)
CARRIERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "predictive_consistency": ("filter",),
        "calibration": METERED,
        "sparsity": METERED,
        "retrieval_accuracy": ("memory",),
        "write_utility": ("memory",),
    }
)
"""Loss → carriers that it needs; other losses work for any region."""
HIDDEN = 0.15
"""Fraction of positions that `masked_prediction` hides."""
SHARPNESS = 0.1
"""Temperature of `retrieval_accuracy`."""
LEAST = 1e-4
"""Minimum variance of `calibration`."""


def learning_of(family: str) -> Learning:
    """Return the learning recipe for a family; for an unknown family a recipe without losses."""
    return Learning(OF_FAMILY.get(family, "none"))


def recipe_of(place: Place) -> dict[str, float]:
    """Return the losses of a region and their weights, without the task's loss.

    Raises
    ------
    SpecError
        A loss does not support the carrier of the region.
    """
    learning = place.learning
    if learning is None:
        return {}
    assert learning.mode in MODES
    losses = dict.fromkeys(OF_MODE[learning.mode], 1.0) if learning.losses is None else dict(learning.losses)
    losses = {name: weight for name, weight in losses.items() if name != "task" and weight}
    for name in losses:
        if name in CARRIERS and place.carrier not in CARRIERS[name]:
            raise SpecError(
                f"region {place.name!r}: {name} needs a carrier {' or '.join(map(repr, CARRIERS[name]))}, "
                f"this one has {place.carrier!r}",
                hint=f"change the carrier, or remove {name} from the losses",
            )
    return losses


def recipe_params(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the parameters of losses, ``regions.<name>.<…>``."""
    d, params = facts.program.canvas.width, list[ParamSpec]()
    for place in facts.places:
        losses, own = recipe_of(place), list[ParamSpec]()
        if "next_step" in losses:
            own += norm_params("next.norm.", d)
            own += (*affine_params("next.up.", d, d, bias=True), *affine_params("next.down.", d, d, bias=True))
        if "masked_prediction" in losses:
            own.append(ParamSpec(name="mask", shape=(d,), init="normal", packable=False))
        if "calibration" in losses:
            own += affine_params("calibration.", d, d, bias=False)
        params += (dataclasses.replace(of, name=f"regions.{place.name}.{of.name}") for of in own)
    return tuple(params)


def recipe_states(facts: Facts) -> dict[str, Shape]:
    """Return the states of losses: the last content of a region, and whether there was one."""
    d, shapes = facts.program.canvas.width, dict[str, Shape]()
    for place in facts.places:
        if "next_step" in recipe_of(place):
            shapes |= {f"{place.name}.seen": (len(place.positions), d), f"{place.name}.begun": (1,)}
    return shapes


def hiding_regions(facts: Facts) -> tuple[Place, ...]:
    """Return the regions whose positions training hides."""
    return tuple(place for place in facts.places if "masked_prediction" in recipe_of(place))


def diffusing_regions(facts: Facts) -> tuple[Place, ...]:
    """Return the regions that training adds noise to: diffusive regions with a `Level` port."""
    with_level = {port.region for port in facts.program.inputs.values() if isinstance(port, Level)}
    return tuple(place for place in facts.places if place.carrier == "diffusive" and place.name in with_level)


def stream_at(path: str, place: Place) -> int:
    """Return the number of a region's random stream for noise, in a layer at a path."""
    return stream_of(f"{path}/{place.name}/noise")
