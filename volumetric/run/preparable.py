"""Preparable: executables whose kernels can be compiled before a call needs them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Preparable(Protocol):
    """An executable whose kernels are compiled when a call first needs them, and can be compiled ahead."""

    def prepare(self) -> None:
        """Compile, or load from the cache, the kernels of calls of every number of rows and outputs; nothing runs."""
        ...
