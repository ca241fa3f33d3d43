"""Learning recipes, constraints and meanings of regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.layers.field_checks import as_number, check_choice, check_text, tuple_of
from volumetric.program.layer.name_checks import KEEPS, LOSSES, MODES, Named, check_named

Mode = Literal["supervised", "ssl_prediction", "posterior_match", "retrieval", "calibration", "none"]
Keep = Literal["auto", "runtime", "freeze", "constant", "export"]


class Learning(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Learning recipe of a region.

    Attributes
    ----------
    mode : recipe
    losses : loss → its weight, or a list of losses with weight 1; None: those of the mode
    keep : treatment of the region at deployment, see `Region`; ``"auto"``: by its family
    """

    mode: Mode = "supervised"
    losses: Mapping[str, float] | None = None
    keep: Keep = "auto"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_choice("Learning: mode", self.mode, MODES)
        check_choice("Learning: keep", self.keep, KEEPS)
        if self.losses is not None:
            force_setattr(self, "losses", _losses(self.losses))


class Constraints(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Constraints on a region and its edges; checked when the layer of a program is built.

    Attributes
    ----------
    equivariance : ``"permutation"``, ``"translation"`` or ``"rotation"``: edges that write the region have no mask, and
        rules that are equivariant to it
    conservation : ``"capacity"`` or ``"energy"``: no edge replaces the region's content
    causal : ``"acyclic"``: the region does not depend on itself over any path; ``"forward_only"``: it reads no
        region that starts at an earlier frame
    monotone : ``"non_decreasing"`` or ``"non_increasing"``: the carrier is neither diffusive nor a filter
    """

    equivariance: Literal["translation", "rotation", "permutation"] | None = None
    conservation: Literal["capacity", "energy"] | None = None
    causal: Literal["acyclic", "forward_only"] | None = None
    monotone: Literal["non_decreasing", "non_increasing"] | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        for name, words in _CONSTRAINTS.items():
            if getattr(self, name) is not None:
                check_choice(f"Constraints: {name}", getattr(self, name), words)


class Semantic(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Meaning of a region, for comparisons between programs.

    Attributes
    ----------
    type : the meaning as text
    vector : embedding of this text, if any
    model : embedding model; only vectors of one model are compared
    """

    type: str | None = None
    vector: tuple[float, ...] | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("type", "model"):
            if getattr(self, name) is not None:
                check_text(f"Semantic: {name}", getattr(self, name))
        if self.vector is not None:
            if not isinstance(self.vector, list | tuple) or not self.vector:
                raise SpecError(f"Semantic: vector must be a list of numbers, got {format_value(self.vector)}")
            force_setattr(self, "vector", tuple(as_number("Semantic: vector", x) for x in self.vector))


_CONSTRAINTS = {
    "equivariance": ("translation", "rotation", "permutation"),
    "conservation": ("capacity", "energy"),
    "causal": ("acyclic", "forward_only"),
    "monotone": ("non_decreasing", "non_increasing"),
}


def _losses(value: Any) -> Named[float]:
    if isinstance(value, list | tuple):
        words = tuple_of("Learning: losses", value, str)
        if len(set(words)) != len(words):
            raise SpecError(f"Learning: duplicate loss in {format_value(list(words))}")
        value = dict.fromkeys(words, 1.0)
    losses = check_named("Learning: losses", value, (int, float))
    for name in losses:
        check_choice("Learning: losses", name, LOSSES)
    return Named({name: as_number(f"Learning: {name}", weight, 0.0) for name, weight in losses.items()})
