"""An ONNX file as a network: one layer, which trains, quantises and is saved as any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError
from volumetric.dtypes import Scheme
from volumetric.graph.build import GraphBuilder
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.model_location import ModelLocation
from volumetric.loaders.model_native import model_of_network
from volumetric.loaders.onnx_import.emit_onnx import emit_onnx
from volumetric.loaders.onnx_import.graph_layer import OnnxGraph
from volumetric.loaders.onnx_import.onnx_declaration import OperatorGraph, onnx_dtype
from volumetric.loaders.onnx_import.onnx_values import OnnxValue, tensor_shape
from volumetric.loaders.onnx_import.read_onnx import ReadOnnx, read_onnx
from volumetric.network import Network, Params
from volumetric.network.weight_store import WeightStore

_ROWS = (3, 5)
"""Numbers of rows with which shapes are tried: what differs is the axis of rows."""


def onnx_network(
    source: str | Path | ReadOnnx, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[Network, Params]:
    """Return an ONNX file as a network of one layer, and its weights.

    Parameters
    ----------
    source : the file, or what was read from it
    shapes : input → its shape without the first axis, for sizes that the file leaves open

    Raises
    ------
    ShapeError : sizes are open, or a first axis is not the rows
    """
    read = source if isinstance(source, ReadOnnx) else read_onnx(Path(source))
    graph = read.graph
    sizes = tuple(_row_shape(i.name, i.shape, dict(shapes or {})) for i in graph.inputs)
    tried = [_result_shapes(graph, sizes, rows) for rows in _ROWS]
    for (name, _), *both in zip(graph.outputs, *tried, strict=True):
        if any(not shape or shape[0] != rows for shape, rows in zip(both, _ROWS, strict=True)):
            raise ShapeError(
                f"the first axis of the output {name!r} is not that of the inputs: {list(both[0])} of {_ROWS[0]} rows",
                hint="volumetric.load runs such a model; only a network needs rows",
            )
    layer = OnnxGraph(graph=graph, shapes=sizes, results=tuple(shape[1:] for shape in tried[0]))
    shape = sizes[0] if len(sizes) == 1 else (sum(map(prod, sizes)),)
    network = Network(layers=[layer], input_shape=shape, input_dtype="float32")
    [coord] = network.layers
    weights = {f"{coord}/{name}": WeightStore.from_array(a.astype(np.float32)) for name, a in read.arrays.items()}
    return network, Params(weights)


def open_onnx_network(location: ModelLocation, dtype: Scheme | None) -> LoadedModel:
    """Open an ONNX file as `open_model` opens others. Raises as `onnx_network`."""
    read = read_onnx(Path(location.weights))
    network, params = onnx_network(read)
    return model_of_network(location, network, params, dtype, classes=read.classes)


def _row_shape(name: str, shape: tuple[int | str, ...] | None, chosen: Mapping[str, Sequence[int]]) -> Shape:
    if name in chosen:
        return tuple(int(n) for n in chosen[name])
    if not shape or any(isinstance(n, str) for n in shape[1:]):
        raise ShapeError(
            f"the ONNX input {name!r} has the shape {list(shape or ())}: a network needs its sizes",
            hint=f'shapes={{"{name}": (…)}} sets them, without the first axis',
        )
    return tuple(int(n) for n in shape[1:])


def _result_shapes(graph: OperatorGraph, sizes: Sequence[Shape], rows: int) -> list[Shape]:
    """Return the shapes of the outputs for a number of rows."""
    work = GraphBuilder()
    values = [
        OnnxValue(
            dtype=onnx_dtype(i.dtype or "float32"),
            shape=(rows, *shape),
            tensor=work.input(i.name, (rows, *shape)),
            sources=frozenset([i.name]),
        )
        for i, shape in zip(graph.inputs, sizes, strict=True)
    ]
    outputs = emit_onnx(
        work,
        graph,
        values,
        lambda p: OnnxValue(
            dtype=onnx_dtype(p.dtype), shape=p.shape, tensor=work.stored_tensor(p.name, tensor_shape(p.shape))
        ),
    )
    return [value.shape for value in outputs]
