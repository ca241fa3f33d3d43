"""Meters: running summaries of a region's error, which clocks and triggers read."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base.errors import SpecError
from volumetric.layers.field_checks import as_number, check_choice, check_flag, tuple_of
from volumetric.program.layer.name_checks import check_name, check_word

REDUCES = ("max_mean", "mean", "max", "rms", "l2")


class Meter(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A running summary of the error of a region: ``s ← decay · s + (1 - decay) · r`` at each step in which it fires.

    Attributes
    ----------
    region : region whose error is measured
    kinds : names of the values; a clock reads ``region.kind``. Without kinds the region has no meter, not even the
        default one of its carrier
    reduce : reduction of the magnitudes |e| of the error to values r: ``"mean"``, ``"max"``, ``"rms"``, ``"l2"`` (the
        norm), or ``"max_mean"``: the mean for one kind; for more kinds the maximum, the mean, and so on in turn
    decay : in [0, 1)
    corrected : divide by ``1 - decayⁿ`` after n updates, to correct the bias of the first updates
    signed : use e instead of |e|
    """

    region: str
    kinds: tuple[str, ...] = ("prediction",)
    reduce: Literal["max_mean", "mean", "max", "rms", "l2"] = "max_mean"
    decay: float = 0.95
    corrected: bool = False
    signed: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        check_name("Meter: a region", self.region)
        what = f"Meter({self.region!r})"
        force_setattr(self, "kinds", tuple_of(f"{what}: kinds", self.kinds, str))
        for kind in self.kinds:
            check_word(f"{what}: a kind", kind)
        if len(set(self.kinds)) != len(self.kinds):
            raise SpecError(f"{what}: kinds must be unique names, got {list(self.kinds)}", hint="remove duplicates")
        check_choice(f"{what}: reduce", self.reduce, REDUCES)
        force_setattr(self, "decay", as_number(f"{what}: decay", self.decay, 0.0, 1.0))
        if self.decay == 1:
            raise SpecError(f"{what}: decay must be below 1", hint="with 1 the meter would never change")
        check_flag(f"{what}: corrected", self.corrected)
        check_flag(f"{what}: signed", self.signed)
