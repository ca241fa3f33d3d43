"""What becomes of regions where a program is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from volumetric.layers.program.declared import Program
from volumetric.layers.program.learning import Keep
from volumetric.layers.program.region import Region
from volumetric.program.compiling.report import Log

OF_FAMILY: Final[Mapping[str, Keep]] = MappingProxyType(
    {"observation": "freeze", "state": "runtime", "memory": "runtime", "residual": "freeze", "action": "freeze"}
)
"""Family → what becomes of its regions, unless they say it themselves; others stay as they are."""


def keep_of(region: Region) -> Keep:
    """Return what becomes of a region: what it says itself, then what its learning says, then its family."""
    if region.keep != "auto":
        return region.keep
    if region.learning is not None and region.learning.keep != "auto":
        return region.learning.keep
    return OF_FAMILY.get(region.family, "runtime")


def without_learning(program: Program, log: Log) -> Program:
    """Take out what regions learn by; what they are kept as stays what it was."""
    regions: dict[str, Region] = {}
    for name, region in program.canvas.regions.items():
        regions[name] = region
        if region.learning is not None:
            keep = keep_of(region)
            bare = replace(region, learning=None)
            regions[name] = bare if keep_of(bare) == keep else replace(bare, keep=keep)
            log.add("removed", "learning", [name], "its losses are of training, and what they alone have learned")
    return replace(program, canvas=replace(program.canvas, regions=regions))
