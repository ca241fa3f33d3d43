"""Variants of an export: sets of capabilities of browsers, of which a page takes the first that its GPU has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.kernels.dispatch import Caps

MAX_BINDING: Final = 128 << 20
_SOFTWARE: Final[dict[str, Any]] = {"unroll": 2, "invocations": 2048}
ALIGNMENT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WebVariant:
    """One variant.

    Attributes
    ----------
    label : for people
    subgroup_size : size of all subgroups of the GPU; 0: it need not have any
    software : cut for adapters that run on the CPU: a few threads, and seconds to compile long straight-line code
    """

    label: str
    subgroup_size: int = 0
    software: bool = False

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
            **(_SOFTWARE if self.software else {}),
        )

    def needs(self) -> dict[str, Any]:
        """Return what an adapter must have, in the form of the format."""
        return {"features": sorted(self.features), "subgroup": self.subgroup_size, "limits": {}}


VARIANTS: Final[dict[str, WebVariant]] = {
    "subgroups": WebVariant(label="subgroups of 32", subgroup_size=32),
    "plain": WebVariant(label="no subgroups"),
    "software": WebVariant(label="software adapters", software=True),
}
"""Name → variant, in the order of preference. The last two run wherever there is WebGPU."""
DEFAULT: Final = ("subgroups", "plain")


def chosen_variants(names: tuple[str, ...] | None) -> list[WebVariant]:
    """Return variants by name, those of `DEFAULT` for None.

    Raises
    ------
    SpecError : there is no such variant, or none that runs anywhere
    """
    chosen = DEFAULT if names is None else names
    unknown = [name for name in chosen if name not in VARIANTS]
    if unknown:
        raise SpecError(f"variants: there is no variant {unknown[0]!r}", hint=f"known: {', '.join(VARIANTS)}")
    variants = [variant for name, variant in VARIANTS.items() if name in chosen]
    if not variants or variants[-1].subgroup_size:
        raise SpecError("variants: none of them runs on GPUs without subgroups", hint="add 'plain'")
    return variants
