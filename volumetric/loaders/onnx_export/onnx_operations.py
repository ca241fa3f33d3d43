"""The registry of translations: operation of the graph → the function that writes it as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeAlias

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import OpenGraph, Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """What a translation reads of a node: names and shapes of its inputs, shapes of its outputs, its attributes.

    `unread` are the numbers of outputs that nobody reads, such as those for gradients.
    """

    inputs: tuple[str, ...]
    shapes: tuple[Sizes, ...]
    results: tuple[Sizes, ...]
    attrs: Mapping[str, Any]
    unread: frozenset[int]

    def by_role(self) -> dict[str, str]:
        """Return the inputs by their roles."""
        return dict(zip(self.attrs["roles"], self.inputs, strict=True))


Translation: TypeAlias = Callable[[OnnxWriter, Operands], "str | Sequence[str]"]
"""Writes nodes and returns the names of the results, or of the first ones; the others must be unread."""

_TRANSLATIONS: Final[dict[str, Translation]] = {}
_MODULES: Final = (
    "onnx_data_movement",
    "onnx_elementwise",
    "onnx_products",
    "onnx_images",
    "onnx_rowwise",
    "onnx_attention",
    "onnx_recurrence",
    "onnx_loops",
    "onnx_edges",
    "onnx_noise",
)


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Register the translation of operations."""

    def register(function: Translation) -> Translation:
        _TRANSLATIONS.update(dict.fromkeys(names, function))
        return function

    return register


@cache
def translations() -> Mapping[str, Translation]:
    """Return operation → translation."""
    for name in _MODULES:
        import_module(f"volumetric.loaders.onnx_export.{name}")
    return _TRANSLATIONS


def write_nodes(writer: OnnxWriter, of: OpenGraph, names: dict[int, str]) -> None:
    """Write all nodes of a graph; `names` has the values that exist, and gets those of all nodes.

    Raises
    ------
    UnsupportedError : an operation has no translation; the message names its layer
    """
    graph, table = of.graph, translations()
    read = {i for node in graph.nodes for i in node.inputs} | set(graph.outputs)
    for i, value in graph.constants.items():
        if i in of.positions:
            names[i] = writer.positions()
        elif i in read and i not in names:
            names[i] = writer.constant(value if graph.tensors[i].dtype == "int32" else value.astype("float32"))
    for node, attrs in zip(graph.nodes, of.attrs, strict=True):
        writer.where = node.where
        if node.op not in table:
            raise UnsupportedError(f"ONNX cannot express the operation {node.op} of the layer at {node.where or '?'}")
        unread = frozenset(at for at, i in enumerate(node.outputs) if i not in read)
        operands = Operands(
            inputs=tuple(names[i] for i in node.inputs),
            shapes=tuple(of.shapes[i] for i in node.inputs),
            results=tuple(of.shapes[i] for i in node.outputs),
            attrs=attrs,
            unread=unread,
        )
        results = table[node.op](writer, operands)
        results = [results] if isinstance(results, str) else list(results)
        if not unread >= set(range(len(results), len(node.outputs))):
            raise UnsupportedError(f"ONNX export has no values for gradients of {node.op} at {node.where or '?'}")
        names.update(zip(node.outputs, results, strict=False))
