"""Blueprint: a network as plain data: every layer, nested ones included, with shapes and parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from volumetric.base._typing import ROWS, Shape
from volumetric.dtypes import Scheme
from volumetric.layers import LayerSpec, Parallel, ParamSpec, Sequential
from volumetric.layers.layer_spec import show_shape
from volumetric.network.grid import Coord, Port
from volumetric.network.network import Network
from volumetric.network.network_json import spec_to_dict
from volumetric.network.weight_store import WeightStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamFact:
    """One tensor: its key in `Params`, shape, elements, stored scheme, and the key of its owner.

    A `buffer`, such as a running mean, does not count as a parameter.
    """

    key: str
    shape: Shape
    elements: int
    scheme: Scheme | None = None
    shared_from: str | None = None
    buffer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFact:
    """One layer.

    Attributes
    ----------
    where : coordinate, with ``/0`` and so on inside containers
    kind : kind of the layer
    settings : fields that differ from their defaults, without nested layers
    input, output : shapes; the first axis counts rows
    params : its parameters and buffers, without those of nested layers
    children : nested layers, in order
    disabled : it acts as the identity
    """

    where: str
    kind: str
    settings: Mapping[str, Any]
    input: Shape
    output: Shape
    params: tuple[ParamFact, ...] = ()
    children: tuple[LayerFact, ...] = ()
    disabled: bool = False

    @property
    def parameters(self) -> int:
        """Number of elements of all parameters of this layer and of nested ones, without shared ones of others."""
        own = sum(p.elements for p in self.params if p.shared_from is None and not p.buffer)
        return own + sum(child.parameters for child in self.children)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, LayerFact]]:
        """Yield the layer and all nested layers, each with its depth of nesting."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def describe(self) -> dict[str, Any]:
        """Return JSON data."""
        params = [
            {
                "key": p.key,
                "shape": list(p.shape),
                "elements": p.elements,
                **({} if p.scheme is None else {"dtype": str(p.scheme)}),
                **({} if p.shared_from is None else {"shared_from": p.shared_from}),
                **({"buffer": True} if p.buffer else {}),
            }
            for p in self.params
        ]
        return {
            "at": self.where,
            **self.settings,
            "kind": self.kind,
            "input": show_shape(self.input),
            "output": show_shape(self.output),
            "parameters": self.parameters,
            "params": params,
            **({"disabled": True} if self.disabled else {}),
            **({"children": [child.describe() for child in self.children]} if self.children else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A network as plain data: sides of its grid, shape of a row of input, layers in reading order.

    Attributes
    ----------
    inputs, outputs : additional inputs and outputs, by name
    """

    grid: tuple[int, int, int, int]
    input: Shape
    input_dtype: str
    layers: tuple[LayerFact, ...]
    inputs: Mapping[str, Port] = field(default_factory=dict)
    outputs: Mapping[str, Coord] = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        """Number of elements of all parameters."""
        return sum(layer.parameters for layer in self.layers)

    def walk(self) -> Iterator[tuple[int, LayerFact]]:
        """Yield every layer, nested ones after their container, each with its depth of nesting."""
        for layer in self.layers:
            yield from layer.walk()

    def describe(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "grid": list(self.grid),
            "input": {"shape": show_shape(self.input), "dtype": self.input_dtype},
            **({"inputs": {name: _port(port) for name, port in self.inputs.items()}} if self.inputs else {}),
            **({"outputs": {name: str(coord) for name, coord in self.outputs.items()}} if self.outputs else {}),
            "total_layers": sum(1 for _ in self.walk()),
            "total_parameters": self.parameters,
            "layers": [layer.describe() for layer in self.layers],
        }


def blueprint(network: Network, params: Mapping[str, WeightStore] | None = None) -> Blueprint:
    """Return the layers of `network` as data; with `params` also the scheme of every tensor. Reads no weights."""
    input_shape = (ROWS, *network.input_shape)
    reader = _BlueprintReader(network, params or {})
    layers: list[LayerFact] = []
    for w in network.wires:
        shape = network.reads[w.coord]
        layers.append(reader.read(network.layers[w.coord], str(w.coord), shape, identity=w.identity))
    return Blueprint(
        grid=network.grid.sides,
        input=input_shape,
        input_dtype=network.input_dtype,
        layers=tuple(layers),
        inputs=network.inputs,
        outputs=network.outputs,
    )


def _port(port: Port) -> dict[str, Any]:
    shape = show_shape((ROWS, *port.shape))
    return {"at": str(port.coord), "shape": shape, "dtype": port.dtype, "combine": port.combine}


class _BlueprintReader:
    """Walks the layers of one network."""

    def __init__(self, network: Network, params: Mapping[str, WeightStore]) -> None:
        self._network = network
        self._params = params

    def read(self, spec: LayerSpec, where: str, shape: Shape, *, identity: bool = False) -> LayerFact:
        """Return the data of one layer for an input of `shape`."""
        children = self._children(spec, where, shape)
        nested = tuple(f"{c.where[len(where) + 1 :]}/" for c in children)
        settings = spec_to_dict(spec)
        settings.pop("kind")
        if spec.children_field is not None:
            settings.pop(spec.children_field)
        output = shape if identity else spec.output_shape(*[shape] * spec.arity)
        return LayerFact(
            where=where,
            kind=spec.kind,
            settings=settings,
            input=shape,
            output=output,
            params=tuple(self._param(f"{where}/{p.name}", p) for p in spec.tensors() if not p.name.startswith(nested)),
            children=children,
            disabled=identity,
        )

    def _param(self, key: str, spec: ParamSpec) -> ParamFact:
        owner = self._network.resolve(key)
        store = self._params.get(owner)
        return ParamFact(
            key=key,
            shape=spec.shape,
            elements=math.prod(spec.shape),
            scheme=None if store is None else store.scheme,
            shared_from=None if owner == key else owner,
            buffer=spec.buffer,
        )

    def _children(self, spec: LayerSpec, where: str, shape: Shape) -> tuple[LayerFact, ...]:
        if isinstance(spec, Sequential):
            facts: list[LayerFact] = []
            for i, child in enumerate(spec.layers):
                facts.append(self.read(child, f"{where}/{i}", shape))
                shape = facts[-1].output
            return tuple(facts)
        if isinstance(spec, Parallel):
            branches = [self.read(b, f"{where}/{i}", shape) for i, b in enumerate(spec.branches)]
            gate = () if spec.gate is None else (self.read(spec.gate, f"{where}/gate", shape),)
            return (*branches, *gate)
        children = spec.children().items()
        return tuple(self.read(child, f"{where}/{path}", spec.reads(path, shape)) for path, child in children)
