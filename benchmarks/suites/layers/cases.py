"""What is measured: one size of every layer kind, as it might occur in a network of some ten million weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tests.examples import EXAMPLES
from volumetric.base.errors import SpecError
from volumetric.layers import LayerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCase:
    """One layer and the shape of its input."""

    name: str
    spec: LayerSpec
    shape: tuple[int, ...]


CASES: Final[Mapping[str, LayerCase]] = MappingProxyType(
    {
        kind: LayerCase(name=kind, spec=case[0], shape=case[1])
        for kind, entry in EXAMPLES.items()
        if (case := entry.timed())
    }
)
"""Layer kind → its case. `reshape` and `flatten` compute nothing; PyTorch has nothing like a `fabric` or `program`."""


def chosen(names: Sequence[str] | None) -> tuple[LayerCase, ...]:
    """Return the cases of these kinds, or all; raise `SpecError` for a kind without one."""
    unknown = [name for name in names or () if name not in CASES]
    if unknown:
        raise SpecError(f"no layer is called {', '.join(unknown)}", hint="one of " + ", ".join(CASES))
    return tuple(CASES[name] for name in names or CASES)
