"""Variants of an export: sets of capabilities of browsers, of which a page takes the first that its GPU has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.kernels.dispatch import Caps

MAX_BINDING: Final = 128 << 20
FALLBACK: Final = "fallback-adapter"
"""What variants for adapters that run on the CPU need. It stands among the features, but WebGPU has none of this name:
engines that do not know it find it absent, and take another variant."""
_SOFTWARE: Final[dict[str, Any]] = {"unroll": 1, "invocations": 2048}
_GRAPHS: Final = "graph/"
"""Beginning of the names of kernels that an adapter on the CPU may not finish compiling; the others are short."""
_SMALL: Final = 1 << 16
"""Bytes of weights of networks whose calls take as long as their launches, however sums are made."""
ALIGNMENT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WebVariant:
    """One variant.

    Attributes
    ----------
    label : for people
    subgroup_size : lanes that surely run together: the size of the GPU's smallest subgroups, or less; 0: it need not
        have any
    software : cut for adapters that run on the CPU, and for them alone: a few threads, and minutes to compile long
        straight-line code
    """

    label: str
    subgroup_size: int = 0
    software: bool = False

    @property
    def features(self) -> frozenset[str]:
        """Features of WebGPU that its shaders enable."""
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
        features = sorted({*self.features, *((FALLBACK,) if self.software else ())})
        return {"features": features, "subgroup": self.subgroup_size, "limits": {}}

    def pays(self, plain: Mapping[str, Any]) -> bool:
        """Return whether a network gains by it.

        Parameters
        ----------
        plain : the variant that runs everywhere, in the form of the format
        """
        if self.software:
            return any(one["label"].startswith(_GRAPHS) for one in plain["pipelines"])
        weights = sum(one["bytes"] for one in plain["buffers"] if "parts" in one or "fill" in one)
        return not self.subgroup_size or weights > _SMALL


VARIANTS: Final[dict[str, WebVariant]] = {
    "software": WebVariant(label="software adapters", software=True),
    "subgroups": WebVariant(label="subgroups of 32", subgroup_size=32),
    "subgroups16": WebVariant(label="subgroups of 16", subgroup_size=16),
    "subgroups8": WebVariant(label="subgroups of 8", subgroup_size=8),
    "plain": WebVariant(label="no subgroups"),
}
"""Name → variant, in the order of preference. The last one runs wherever there is WebGPU."""
DEFAULT: Final = ("software", "subgroups", "plain")
"""Variants of an export; those that do not pay are left out."""


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
    if VARIANTS["plain"] not in variants:
        raise SpecError("variants: none of them runs on every GPU", hint="add 'plain'")
    return variants
