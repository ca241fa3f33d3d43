"""The operations by family: a module for each, imported when a graph asks for one of its operations."""

from volumetric.graph.operations.base import OPS as OPS
from volumetric.graph.operations.base import Op as Op
