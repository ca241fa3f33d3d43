"""Preparable: executables whose kernels can be compiled ahead of time."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Preparable(Protocol):
    """An executable whose kernels are compiled on first use, or ahead of time by `prepare`."""

    def prepare(self) -> None:
        """Compile the kernels for all row counts and outputs, or load them from the cache, without running them."""
        ...
