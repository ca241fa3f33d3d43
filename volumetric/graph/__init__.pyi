# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .build import GraphBuilder as GraphBuilder
from .differentiate import differentiate as differentiate
from .graph_device import GraphDevice as GraphDevice
from .graph_device import GraphProgram as GraphProgram
from .graph_device import TensorStore as TensorStore
from .interpret import interpret as interpret
from .numpy_graphs import NumpyGraphs as NumpyGraphs
from .ops import Graph as Graph
from .ops import Node as Node
from .ops import Tensor as Tensor
