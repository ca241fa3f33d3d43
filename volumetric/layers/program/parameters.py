"""All that a program learns."""

from __future__ import annotations

from functools import lru_cache

from volumetric.layers.base import ParamSpec
from volumetric.layers.program.ends import port_params
from volumetric.layers.program.facts import Facts
from volumetric.layers.program.limits import check_weights
from volumetric.layers.program.recipes import recipe_params
from volumetric.layers.program.states import region_params
from volumetric.layers.program.tasks import params_of


@lru_cache(maxsize=32)
def all_params(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the parameters of ports, regions, their recipes and edges, in this order; refuse what no memory holds."""
    found = *port_params(facts), *region_params(facts), *recipe_params(facts), *params_of(facts)
    check_weights(found)
    return found
