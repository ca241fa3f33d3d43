"""WGSL compute shaders and the linker that joins them into modules. Text only: nothing here uses a GPU."""

from volumetric.devices.gpu.shaders.linker import Binding, Linked, Target, available, link, read
from volumetric.devices.gpu.shaders.rounds import rounds

__all__ = ["Binding", "Linked", "Target", "available", "link", "read", "rounds"]
