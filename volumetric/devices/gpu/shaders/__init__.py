"""WGSL compute shaders and the linker that joins them into modules. Text only: nothing here uses a GPU."""

from volumetric.devices.gpu.shaders.linker import Binding, LinkedShader, ShaderTarget, available, link, read_shader
from volumetric.devices.gpu.shaders.loop_bounds import loop_rounds_bound

__all__ = ["Binding", "LinkedShader", "ShaderTarget", "available", "link", "loop_rounds_bound", "read_shader"]
