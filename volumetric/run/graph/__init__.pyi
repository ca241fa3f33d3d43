# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .network import EmitOptions as EmitOptions
from .network import emit_plan as emit_plan
from .network import graph_of as graph_of
from .network import open_graph as open_graph
