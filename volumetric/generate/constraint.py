"""Constraints: which tokens may come next, where a text must have a form."""

from __future__ import annotations

from typing import Protocol

from volumetric._typing import F32Array


class Constraint(Protocol):
    """The form of one text, and how far the text has come in it."""

    def allow(self, logits: F32Array) -> F32Array:
        """Return logits, float32 ``[V]``, in which tokens that the form does not allow are -inf.

        Raises
        ------
        GenerationError : no form is left: it is too large to be followed
        """
        ...

    def take(self, token: int) -> None:
        """Go on by a token, which the form allows."""
        ...
