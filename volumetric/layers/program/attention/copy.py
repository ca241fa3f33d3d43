"""`copy`: what is read, as it is."""

from __future__ import annotations

from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention.base import Attention, attention


@attention("copy")
class Copy(Attention):
    """Row i of the source for query i, zeros beyond its end. It has neither parameters nor heads."""

    whole = True

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return ()
