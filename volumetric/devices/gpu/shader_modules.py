"""Shader modules, compiled without the checks that WebGPU implementations add for untrusted code."""

from __future__ import annotations

from typing import Any

from volumetric.devices.gpu.webgpu.webgpu_implementation import WebGpu

_CHECKED = "graph/"
"""Kernels of graphs use operand values as indices, so they keep the checks."""
_CLAMPED = frozenset({"graph/cross_heads", "graph/recurrent", "graph/recurrent_grad"})
"""Kernels that need no checks: their indices follow from sizes alone."""


def create_module(implementation: WebGpu, device: Any, name: str, text: str) -> Any:
    """Compile WGSL unchecked, or with checks of array indices and loops if a kernel needs them.

    Other kernels clamp every index themselves.
    """
    checked = name.startswith(_CHECKED) and name not in _CLAMPED
    return implementation.create_module(device, name, text, checked=checked)
