"""Variants of an export: sets of capabilities of browsers, of which a page takes the first that its GPU has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.kernels.dispatch import Caps

MAX_BINDING: Final = 128 << 20
ALIGNMENT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WebVariant:
    """One variant.

    Attributes
    ----------
    label : for people
    subgroup_size : size of all subgroups of the GPU; 0: it need not have any
    """

    label: str
    subgroup_size: int

    @property
    def features(self) -> frozenset[str]:
        """Features of WebGPU that it needs."""
        return frozenset({"subgroups"} if self.subgroup_size else ())

    @property
    def caps(self) -> Caps:
        """WebGPU's default limits; no immediates, no matrix units, no float16 in shaders."""
        return Caps(
            subgroup_size=self.subgroup_size,
            immediates=False,
            max_workgroup=256,
            max_shared=16384,
            max_storage_buffers=8,
            max_binding=MAX_BINDING,
            max_groups=65535,
        )

    def needs(self) -> dict[str, Any]:
        """Return what an adapter must have, in the form of the format."""
        return {"features": sorted(self.features), "subgroup": self.subgroup_size, "limits": {}}


VARIANTS: Final[dict[str, WebVariant]] = {
    "subgroups": WebVariant(label="subgroups of 32", subgroup_size=32),
    "plain": WebVariant(label="no subgroups", subgroup_size=0),
}
"""Name → variant, in the order of preference. The last one runs wherever there is WebGPU."""


def chosen_variants(names: tuple[str, ...] | None) -> list[WebVariant]:
    """Return variants by name, all of them for None.

    Raises
    ------
    SpecError : there is no such variant, or ``"plain"`` is missing
    """
    chosen = tuple(VARIANTS) if names is None else names
    unknown = [name for name in chosen if name not in VARIANTS]
    if unknown or "plain" not in chosen:
        missing = "'plain', which runs anywhere, is missing"
        what = f"there is no variant {unknown[0]!r}" if unknown else missing
        raise SpecError(f"variants: {what}", hint=f"known: {', '.join(VARIANTS)}")
    return [variant for name, variant in VARIANTS.items() if name in chosen]
