"""How each layer kind becomes nodes of a graph: a module for each group of kinds, imported when a layer asks for it."""

from volumetric.runtime.graph.rules.base import RULES as RULES
from volumetric.runtime.graph.rules.base import GraphTraining as GraphTraining
from volumetric.runtime.graph.rules.base import Scope as Scope
