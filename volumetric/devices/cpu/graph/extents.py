"""The part of a storage that each tensor occupies: tensors with one key, parts and views share a storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from volumetric.devices.cpu.step_builder import StepBuilder

Storage: TypeAlias = "int | str"


def extents_of(builder: StepBuilder) -> Callable[[int], tuple[Storage, int]]:
    """Return a function from a tensor to its storage, and its first byte there."""
    of = builder.roots() if builder.shared is None else builder.shared.of
    start = [0] * len(of) if builder.shared is None else builder.shared.start
    keys = [builder.graph.tensors[i].key for i in of]

    def extent(tensor: int) -> tuple[Storage, int]:
        if tensor in builder.parts:
            whole, at = builder.parts[tensor]
            storage, first = extent(whole)
            return storage, first + at
        return (keys[tensor] or of[tensor], start[tensor]) if tensor < len(of) else (tensor, 0)

    return extent
