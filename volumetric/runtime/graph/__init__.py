"""The graph: how any network runs and trains on any device. The operations are listed in `ops`."""

from volumetric.runtime.graph.build import GraphBuilder as GraphBuilder
from volumetric.runtime.graph.device import GraphDevice as GraphDevice
from volumetric.runtime.graph.device import GraphProgram as GraphProgram
from volumetric.runtime.graph.device import TensorStore as TensorStore
from volumetric.runtime.graph.differentiate import differentiate as differentiate
from volumetric.runtime.graph.interpret import interpret as interpret
from volumetric.runtime.graph.network import EmitOptions as EmitOptions
from volumetric.runtime.graph.network import emit_plan as emit_plan
from volumetric.runtime.graph.network import graph_of as graph_of
from volumetric.runtime.graph.network import open_graph as open_graph
from volumetric.runtime.graph.numpy_graphs import NumpyGraphs as NumpyGraphs
from volumetric.runtime.graph.ops import Graph as Graph
from volumetric.runtime.graph.ops import Node as Node
from volumetric.runtime.graph.ops import Tensor as Tensor
