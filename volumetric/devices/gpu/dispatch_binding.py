"""Links dispatches and resolves their bindings, for open GPUs and for recordings of another machine."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.gpu_context import BufferSlice
from volumetric.devices.gpu.kernels.dispatch import Caps, Dispatch
from volumetric.devices.gpu.shaders import Binding, LinkedShader, ShaderTarget, link
from volumetric.devices.gpu.shaders.dialects import Dialect
from volumetric.devices.gpu.shaders.linker import ARGS_BINDING

_UNIFORM_BINDING: Final = 64 << 10
"""Bytes of a uniform buffer that every WebGPU device binds."""


def buffer_bytes(nbytes: int, label: str, caps: Caps, *, uniform: bool = False, read: bool = False) -> int:
    """Return the size of a buffer, a multiple of 16.

    Raises
    ------
    DeviceError : it exceeds a binding
    """
    size = max(-(-nbytes // 16) * 16, 16)
    limit = max(caps.max_binding, _UNIFORM_BINDING) if uniform else caps.max_binding
    if size > limit and not read:
        raise DeviceError(
            f"{label} needs {_readable(size)} in one buffer; this GPU binds at most {_readable(limit)}",
            hint="use a smaller context, or another device",
        )
    return size


def link_for(dispatch: Dispatch, caps: Caps, dialect: Dialect) -> LinkedShader:
    """Return the module of a dispatch for a device."""
    target = ShaderTarget(subgroup_size=caps.subgroup_size, immediates=caps.immediates, dialect=dialect)
    return link(dispatch.kernel, constants=dispatch.constants, preludes=dispatch.preludes, target=target)


def check_workgroup_memory(linked: LinkedShader, caps: Caps) -> None:
    """Raise `DeviceError` if a module needs more workgroup memory than a device has."""
    if linked.workgroup_bytes > caps.max_shared:
        raise DeviceError(
            f"{linked.name} needs {linked.workgroup_bytes} bytes of workgroup memory; this GPU has {caps.max_shared}",
            hint="use device='cpu'",
        )


def argument_words(dispatch: Dispatch) -> bytes:
    """Return the small arguments of a dispatch."""
    return np.array(dispatch.args, np.uint32).tobytes()


def bound_slices(
    linked: LinkedShader,
    dispatch: Dispatch,
    buffers: Mapping[str, Any],
    dims: Sequence[int | float],
    *,
    uniform: Callable[[bytes], Any],
    idle: Callable[[Binding], Any],
) -> list[tuple[Binding, BufferSlice]]:
    """Return what each binding of a module is bound to. Buffers that this variant does not need are not bound.

    Parameters
    ----------
    uniform : returns a uniform buffer with such contents
    idle : returns an unused buffer for an optional binding

    Raises
    ------
    DeviceError : the shader does not declare a name, or a buffer would be bound to two writable bindings, which wgpu
        accepts and WebGPU forbids
    """
    unknown = set(buffers) - {b.name for b in linked.bindings} - linked.unused
    if unknown:
        raise DeviceError(f"shader {linked.name} has no binding {', '.join(sorted(unknown))}")
    slices: list[tuple[Binding, BufferSlice]] = []
    written: list[BufferSlice] = []
    for binding in linked.bindings:
        if binding.index == ARGS_BINDING:
            buffer = uniform(argument_words(dispatch))
        elif binding.name == "dims" and "dims" not in buffers:
            buffer = uniform(_words(dims))
        else:
            buffer = buffers[binding.name] if binding.name in buffers else idle(binding)
        part = buffer if isinstance(buffer, BufferSlice) else BufferSlice(buffer, 0, buffer.size)
        written += [part] if binding.access == "read_write" else []
        slices.append((binding, part))
    if any(one.overlaps(other) for i, one in enumerate(written) for other in written[:i]):
        raise DeviceError(f"two results of {linked.name} would be written to one place")
    return slices


def idle_place(binding: Binding) -> int:
    """Return the number of the unused buffer for a binding: WebGPU forbids one buffer on two writable bindings."""
    return binding.index if binding.access == "read_write" else -1


def _words(dims: Sequence[int | float]) -> bytes:
    return b"".join(
        struct.pack("<f", word) if isinstance(word, float) else struct.pack("<I", word % (1 << 32)) for word in dims
    )


def _readable(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 16 << 20 else f"{-(-nbytes >> 10)} KiB"
