"""Shader modules, compiled without the checks that WebGPU implementations add for untrusted code."""

from __future__ import annotations

from typing import Any

_CHECKED = "graph/"
"""Kernels of graphs use operand values as indices, so they keep the checks."""
_CLAMPED = frozenset({"graph/cross_heads"})
"""Kernels that need no checks."""


def create_module(device: Any, name: str, text: str) -> Any:
    """Compile WGSL unchecked, or with wgpu's checks of array indices and loops if a kernel needs them.

    Other kernels clamp every index themselves. The checks cost 15 % of the time per token of a small model on an H100.
    """
    from wgpu.backends.wgpu_native import _api

    if name.startswith(_CHECKED) and name not in _CLAMPED:
        return device.create_shader_module(label=name, code=text)
    source = _api.new_struct_p("WGPUShaderSourceWGSL *", code=_api.to_c_string_view(text))
    source[0].chain.sType = _api.lib.WGPUSType_ShaderSourceWGSL
    descriptor = _api.new_struct_p(
        "WGPUShaderModuleDescriptor *",
        nextInChain=_api.ffi.cast("WGPUChainedStruct *", source),
        label=_api.to_c_string_view(name),
    )
    module = _api.libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0)
    return _api.GPUShaderModule(name, module, device)
