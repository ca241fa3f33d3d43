"""The operations by family: one module each, imported when a graph uses one of its operations."""

from volumetric.graph.operations.operation import OPS as OPS
from volumetric.graph.operations.operation import OpSpec as OpSpec
