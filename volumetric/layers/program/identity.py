"""Slots through which a region is read."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from volumetric.layers.checks import check_choice, check_flag, check_whole

MOST_SLOTS = 65_536


class Identity(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Slots that the values of a region are bound to, and that are read in place of them.

    ``slots' = LN(slots + cross(slots ← values))``, times a life gate σ(MLP(slots')) if there are births.

    Attributes
    ----------
    capacity : number of slots
    mode : ``"persistent"``: slots go on from step to step; ``"ephemeral"``: each step begins with the learned ones
    births : slots have a life gate
    """

    capacity: int = 64
    mode: Literal["persistent", "ephemeral"] = "persistent"
    births: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Identity: capacity", self.capacity, most=MOST_SLOTS)
        check_choice("Identity: mode", self.mode, ("persistent", "ephemeral"))
        check_flag("Identity: births", self.births)
