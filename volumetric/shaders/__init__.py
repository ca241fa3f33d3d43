"""WGSL compute shaders and the linker that joins them into modules. Text only: nothing here touches a GPU."""

from volumetric.shaders.linker import Binding, Linked, Target, available, link, read
from volumetric.shaders.rounds import rounds

__all__ = ["Binding", "Linked", "Target", "available", "link", "read", "rounds"]
