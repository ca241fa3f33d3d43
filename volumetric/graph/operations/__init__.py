"""The operations by family: one module each, imported when a graph uses one of its operations."""

from volumetric.graph.operations.base import OPS as OPS
from volumetric.graph.operations.base import Op as Op
