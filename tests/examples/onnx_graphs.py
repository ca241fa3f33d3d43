"""Small ONNX graphs as layers, without a file."""

from __future__ import annotations

import numpy as np

from tests.examples.entry import Examples
from volumetric.loaders.onnx_import.graph_layer import OnnxGraph
from volumetric.loaders.onnx_import.onnx_declaration import (
    NodeAttribute,
    OnnxConstant,
    OnnxInput,
    OnnxNode,
    OnnxParameter,
    OperatorGraph,
    pack_array,
)


def product(width: int, out: int) -> OnnxGraph:
    """``tanh(x W) + 0.5``."""
    graph = OperatorGraph(
        nodes=(
            OnnxNode(op="MatMul", inputs=("x", "weight"), outputs=("p",)),
            OnnxNode(op="Tanh", inputs=("p",), outputs=("t",)),
            OnnxNode(op="Add", inputs=("t", "half"), outputs=("y",)),
        ),
        inputs=(OnnxInput(name="x", dtype="float32", shape=("n", width)),),
        outputs=(("y", "float32"),),
        parameters=(OnnxParameter(name="weight", shape=(width, out)),),
        constants=(OnnxConstant(name="half", value=pack_array(np.full((), 0.5, np.float32))),),
    )
    return OnnxGraph(graph=graph, shapes=((width,),), results=((out,),))


def rows_of_ports() -> OnnxGraph:
    """Two inputs and two outputs: a product with the transpose, and a sum along an axis."""
    graph = OperatorGraph(
        nodes=(
            OnnxNode(op="Einsum", inputs=("a", "b"), outputs=("y",), attributes=(_text("equation", "nij,nkj->nik"),)),
            OnnxNode(op="Mul", inputs=("b", "gain"), outputs=("g",)),
            OnnxNode(op="ReduceSum", inputs=("g", "axis"), outputs=("z",), attributes=(_number("keepdims", 0),)),
        ),
        inputs=(
            OnnxInput(name="a", dtype="float32", shape=("n", 2, 3)),
            OnnxInput(name="b", dtype="float32", shape=("n", 2, 3)),
        ),
        outputs=(("y", "float32"), ("z", "float32")),
        parameters=(OnnxParameter(name="gain", shape=(3,)),),
        constants=(OnnxConstant(name="axis", value=pack_array(np.array([1]))),),
    )
    return OnnxGraph(graph=graph, shapes=((2, 3), (2, 3)), results=((2, 2), (3,)))


def _text(name: str, text: str) -> NodeAttribute:
    return NodeAttribute(name=name, text=text)


def _number(name: str, number: int) -> NodeAttribute:
    return NodeAttribute(name=name, number=number)


ONNX_GRAPHS: dict[str, Examples] = {
    "onnx_graph": Examples(
        cases={"onnx-graph": (product(5, 3), (4, 5)), "onnx-graph-ports": (rows_of_ports(), (4, 12))},
        sized=lambda r, a, b: (product(a, b), (r, a)),
    ),
}
