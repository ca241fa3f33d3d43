# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .network_graph import EmitOptions as EmitOptions
from .network_graph import emit_plan as emit_plan
from .network_graph import graph_of as graph_of
from .network_graph import open_graph as open_graph
