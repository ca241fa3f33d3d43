"""A guess: what somebody who knows another package types first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Code that is guessed from another package, and ends with an assertion.

    Attributes
    ----------
    peer : the package that it is guessed from
    code : Python source
    """

    peer: str
    code: str
