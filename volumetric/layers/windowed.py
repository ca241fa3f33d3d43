"""The base of layers over spatial axes: fields with one number for all axes, or one for each."""

from __future__ import annotations

from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.layers.layer_spec import LayerSpec, layer_base


@layer_base
class Windowed(LayerSpec):
    """A layer on images ``[N, C, *sizes]``."""

    spatial: ClassVar[int]
    """Number of spatial axes."""

    @property
    def axes(self) -> str:
        """Names of the spatial axes, for messages."""
        return ", ".join(("L",) if self.spatial == 1 else ("D", "H", "W")[-self.spatial :])

    def along(self, name: str, least: int) -> Shape:
        """Return the field `name` as one number for each spatial axis; raise `SpecError` for one below `least`."""
        value = getattr(self, name)
        values = tuple(value) if isinstance(value, tuple | list) else (value,) * self.spatial
        whole = all(isinstance(v, int) and not isinstance(v, bool) and v >= least for v in values)
        if len(values) != self.spatial or not whole:
            many = f" or {self.spatial} of them" if self.spatial > 1 else ""
            raise SpecError(f"{self.kind}: {name} must be a whole number from {least}{many}, got {value!r}")
        return values
