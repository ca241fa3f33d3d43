"""The operations by family: a module for each, imported when a graph asks for one of its operations."""

from volumetric.runtime.graph.families.base import OPS as OPS
from volumetric.runtime.graph.families.base import Op as Op
