"""`perceiver`: reading through a few learned latents."""

from __future__ import annotations

from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention.base import attention, positive
from volumetric.layers.program.attention.heads import ByHeads

COMPRESS, READOUT = "compress.", "readout."


@attention("perceiver")
class Perceiver(ByHeads):
    """``Z = cross(latents ← source)``, ``a = cross(queries ← Z)`` (Jaegle et al. 2021).

    Attributes
    ----------
    latents : how many
    """

    whole = True

    latents: int = 8

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "heads", "latents")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        latents = ParamSpec(name="latents", shape=(self.latents, d), init="normal", packable=False)
        return latents, *self.maps(d, COMPRESS, READOUT)
