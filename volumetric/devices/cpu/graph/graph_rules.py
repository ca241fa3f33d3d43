"""Lowering rules for graphs of fixed shape: helpers that they share."""

from __future__ import annotations

from volumetric.base.moved_modules import moved_names_getattr
from volumetric.devices.cpu.step_builder import LoweringRules, StepBuilder
from volumetric.graph.operations.operation import kernels_for
from volumetric.graph.ops import Node

rule: LoweringRules = LoweringRules(kernels_for("cpu"))
"""Operation → function that appends its steps; the modules of this package register theirs, other packages add more."""

READ_SPEED = 12.0
"""Bytes a core moves in a nanosecond, for estimates."""


@rule("reshape")
def view(builder: StepBuilder, node: Node) -> None:
    """A view: both tensors share storage."""


def move_nanoseconds(*sizes: int) -> float:
    """Estimated nanoseconds to move tensors of `sizes` bytes."""
    return 20 + sum(sizes) / READ_SPEED


__getattr__ = moved_names_getattr(__name__)
