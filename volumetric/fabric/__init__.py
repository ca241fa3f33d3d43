"""Fabrics: the parts of a declaration, and `compile`, which turns it into a network."""

from volumetric.fabric import cells as cells
from volumetric.fabric import graph as graph
from volumetric.fabric import lattice2d as lattice2d
from volumetric.fabric import lattice3d as lattice3d
from volumetric.fabric.body import Population as Population
from volumetric.fabric.compile import Model as Model
from volumetric.fabric.compile import compile as compile  # noqa: A004  (its name in the field)
from volumetric.fabric.fabric_blueprint import Blueprint as Blueprint
from volumetric.fabric.fabric_blueprint import BySenderTile as BySenderTile
from volumetric.fabric.fabric_blueprint import DotProduct as DotProduct
from volumetric.fabric.fabric_blueprint import Input as Input
from volumetric.fabric.fabric_blueprint import Interface as Interface
from volumetric.fabric.fabric_blueprint import Output as Output
from volumetric.fabric.fabric_blueprint import ReceiverSlot as ReceiverSlot
from volumetric.fabric.fabric_blueprint import ReceiverState as ReceiverState
from volumetric.fabric.node_edits import add as add
from volumetric.fabric.node_edits import living as living
from volumetric.fabric.node_edits import mask as mask
from volumetric.fabric.node_edits import remove as remove
from volumetric.fabric.node_edits import split as split
from volumetric.fabric.node_edits import unmask as unmask
