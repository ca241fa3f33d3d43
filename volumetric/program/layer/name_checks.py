"""Terms of programs: families, carriers, operators and rules; checks of names, and mappings by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.layers.field_checks import check_choice, check_text

FAMILIES: Final = ("observation", "state", "memory", "residual", "action")
"""Families with defaults; a region can have any other family."""
CARRIERS: Final = ("deterministic", "residual", "filter", "memory", "diffusive", "constant")
OPERATORS: Final = (
    "attend",
    "observe",
    "predict",
    "correct",
    "bind",
    "retrieve",
    "write",
    "act",
    "compress",
    "integrate",
    "intervene",
    "emit_residual",
)
RULES: Final = (
    "cross",
    "linear",
    "cosine",
    "sigmoid",
    "gated",
    "perceiver",
    "pooling",
    "copy",
    "none",
    "sparse",
    "local",
    "random_fixed",
    "mixture",
    "mamba",
    "rwkv",
    "hyena",
)
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "self_attention": "cross",
        "cogvideox": "cross",
        **{f"{name}_attention": name for name in ("cross", "linear", "cosine", "sigmoid", "sparse", "local")},
    }
)
"""Aliases of rules."""
MODES: Final = ("supervised", "ssl_prediction", "posterior_match", "retrieval", "calibration", "none")
LOSSES: Final = (
    "task",
    "next_step",
    "masked_prediction",
    "predictive_consistency",
    "calibration",
    "retrieval_accuracy",
    "write_utility",
    "sparsity",
)
KEEPS: Final = ("auto", "runtime", "freeze", "constant", "export")

NAME: Final = r"[A-Za-z_](?:[A-Za-z0-9_.\[\]-]{0,126}[A-Za-z0-9_\]-])?"
"""Pattern for names of regions, ports and events."""
_NAME = re.compile(NAME, re.ASCII)
_EDGE = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]<#-]{0,299}", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)


def check_name(what: str, name: Any) -> None:
    """Raise `SpecError` unless `name` is a valid name of a region, a port or an event."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SpecError(
            f"{what} cannot be called {format_value(name)}",
            hint='a letter or "_", then letters, digits, "_", "-", "[", "]", and "." except at the end; at most 128',
        )


def check_edge_name(name: Any) -> None:
    """Raise `SpecError` unless `name` is a valid name of an edge."""
    if not isinstance(name, str) or _EDGE.fullmatch(name) is None:
        raise SpecError(
            f"an edge cannot be called {format_value(name)}",
            hint='a letter or "_", then letters, digits, "_", "-", ".", "[", "]", "<" and "#"; at most 300',
        )


def check_word(what: str, word: Any) -> None:
    """Raise `SpecError` unless `word` is a valid word."""
    if not isinstance(word, str) or _WORD.fullmatch(word) is None:
        raise SpecError(
            f"{what} cannot be {format_value(word)}", hint='a letter or "_", then letters, digits, "_" and "-"'
        )


def rule_of(what: str, name: Any) -> str:
    """Return the name of a rule, which may be given by an alias."""
    name = ALIASES.get(name, name) if isinstance(name, str) else name
    check_choice(f"{what}: rule", name, RULES)
    return name


T = TypeVar("T")


class Named(dict[str, T]):
    """An immutable mapping by name. Equality includes the order, so that equal mappings have equal texts."""

    def __eq__(self, other: object) -> bool:
        """Compare names, values and their order."""
        return isinstance(other, Mapping) and list(self.items()) == list(other.items())

    def __ne__(self, other: object) -> bool:
        """Compare as ``==`` does."""
        return not self == other

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  (a dict has none: it is mutable)
        """Hash names, values and their order."""
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy and pickle by the constructor, because items cannot be set later."""
        return type(self), (dict(self),)

    def __copy__(self) -> Named[T]:
        """Return itself."""
        return self

    def __or__(self, other: Any) -> Any:
        """Return a plain dict of both."""
        return dict(self) | dict(other)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("mappings of programs are immutable; create a new one")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]  (refuses)


def check_named(what: str, mapping: Any, kind: type[T] | tuple[type[T], ...]) -> Named[T]:
    """Return a mapping as `Named`; raise `SpecError` unless keys are text and values are of a type."""
    if not isinstance(mapping, Mapping):
        raise SpecError(f"{what} must be a mapping by name, got {format_value(mapping)}")
    for name, value in mapping.items():
        check_text(f"{what}: a name", name)
        if not isinstance(value, kind):
            kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise SpecError(f"{what}: {format_value(name)} must be {kinds}, got {format_value(value)}")
        if isinstance(value, str):
            check_text(f"{what}: {format_value(name)}", value)
    return mapping if isinstance(mapping, Named) else Named(mapping)
