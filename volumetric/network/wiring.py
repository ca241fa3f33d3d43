"""Wiring: resolves links, residuals and disabled slots to the value that every layer of a grid reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from volumetric.base._typing import ROWS, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers import LayerSpec, Residual
from volumetric.layers.containers import INPUT
from volumetric.network.grid import Coord, Link, Port


@dataclass(frozen=True, slots=True)
class Source:
    """A value in a network: the input or output of the layer at `coord`, or the network's input `port` if that is None.

    With a `delay`: its value that many rows of the sequence earlier.
    """

    coord: Coord | None = None
    side: Literal["output", "input"] = "output"
    delay: int = 0
    port: str = INPUT

    def __str__(self) -> str:
        if self.coord is None:
            return "the network's input" if self.port == INPUT else f"the network's input {self.port!r}"
        earlier = f" {self.delay} row{'s'[: self.delay > 1]} earlier" if self.delay else ""
        return f"the {self.side} of {self.coord}{earlier}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The input of one layer: the sum of `inputs`, for a Residual also `skip`. `identity`: the layer is disabled."""

    coord: Coord
    inputs: tuple[Source, ...]
    skip: Source | None = None
    identity: bool = False


def wire(
    layers: Mapping[Coord, LayerSpec],
    links: tuple[Link, ...],
    disabled: frozenset[Coord],
    ports: Mapping[str, Port] = MappingProxyType({}),
) -> tuple[Wire, ...]:
    """Resolve the inputs of every layer, in reading order: the chain, links, `ports`.

    Raises
    ------
    SpecError : a link, port or residual names a coordinate without a layer, or a residual names a later layer
    """
    for name, port in ports.items():
        if port.coord not in layers:
            raise SpecError(f"input {name!r}: there is no layer at {port.coord}", hint=places_of(layers))
    for link in links:
        for end in (link.source, link.target):
            if end not in layers:
                raise SpecError(f"{link.kind} link {link.source} → {link.target}: there is no layer at {end}")
    arriving: dict[Coord, list[Link]] = {}
    for link in links:
        if link.kind == "activation":
            arriving.setdefault(link.target, []).append(link)
    wires: list[Wire] = []
    previous: Coord | None = None
    for coord, spec in layers.items():
        incoming = arriving.get(coord, [])
        own_ports = {name: port for name, port in ports.items() if port.coord == coord}
        keep = not any(end.combine == "replace" for end in (*incoming, *own_ports.values()))
        inputs = ([Source(previous)] if keep else []) + [Source(link.source, delay=link.delay) for link in incoming]
        inputs += [Source(port=name) for name in own_ports]
        identity = coord in disabled
        skip = None if identity or not isinstance(spec, Residual) else _skip(coord, spec, previous, layers)
        wires.append(Wire(coord=coord, inputs=tuple(inputs), skip=skip, identity=identity))
        previous = coord
    return tuple(wires)


def places_of(layers: Mapping[Coord, LayerSpec]) -> str:
    """Return the coordinates of layers, for a hint."""
    shown = [str(coord) for coord in layers]
    return "layers are at " + ", ".join(shown if len(shown) <= 8 else [*shown[:4], "…", *shown[-3:]])


def _skip(coord: Coord, spec: Residual, previous: Coord | None, layers: Mapping[Coord, LayerSpec]) -> Source:
    if spec.source == INPUT:
        return Source()
    if spec.source is None:
        if previous is None:
            raise SpecError(f"residual at {coord}: the first layer has no preceding layer", hint='source="input"')
        return Source(previous, "input")
    source = Coord.parse(spec.source)
    if source not in layers:
        raise SpecError(f"residual at {coord}: there is no layer at its source {source}")
    _check_earlier(f"residual at {coord}", source, coord, layers, "a residual adds the output of an earlier layer")
    return Source(source)


def check_order(wires: tuple[Wire, ...], layers: Mapping[Coord, LayerSpec]) -> None:
    """Raise `SpecError` if a layer reads a value of the same row from a layer that does not come before it.

    Such a network can be built and inspected, as an intermediate step of an edit, but not run.
    """
    for w in wires:
        for source in w.inputs:
            if source.coord is not None and not source.delay:
                what = f"activation link {source.coord} → {w.coord}"
                _check_earlier(what, source.coord, w.coord, layers, "set a delay of 1 row or more on the link")


def _check_earlier(what: str, source: Coord, target: Coord, layers: Mapping[Coord, LayerSpec], hint: str) -> None:
    if source < target:
        return
    loop = [str(c) for c in layers if target <= c <= source] + [str(target)]
    shown = " → ".join(loop if len(loop) <= 6 else [*loop[:3], "…", *loop[-2:]])
    raise SpecError(f"{what} closes a loop: {shown}", hint=hint)


def carries_ids(source: Source, wires: Mapping[Coord, Wire], ports: Mapping[str, Port]) -> bool:
    """Return whether a value is ids of an input: layers output features, and the identity passes its input on."""
    passed: set[Coord] = set()
    while source.coord is not None:
        w = wires[source.coord]
        if w.coord in passed or (source.side == "output" and not w.identity):
            return False
        passed.add(w.coord)
        source = w.inputs[0]  # summed values are not ids
    return ports[source.port].dtype == "int32"


def own_output(
    coord: Coord, layers: Mapping[Coord, LayerSpec], wires: tuple[Wire, ...], ports: Mapping[str, Port]
) -> Shape:
    """Return the output shape of a layer according to its weights, or to those of the nearest layer before it.

    For layers in a loop, whose input shape is not known yet.

    Raises
    ------
    ShapeError : no layer of the loop determines the shape
    """
    reads = {w.coord: w for w in wires}
    path: dict[Coord, None] = {}
    shape, at = None, coord
    while shape is None:
        if at in path:
            raise ShapeError(
                "no layer determines the shape in the loop " + " → ".join(map(str, reversed(path))),
                hint='let a layer of the loop read the chain, too: combine="add"',
            )
        w = reads[at]
        shape = None if w.identity else _by_weights(layers[at])
        if shape is None:
            path[at] = None
            source = w.inputs[0]
            shape, at = ((ROWS, *ports[source.port].shape), at) if source.coord is None else (None, source.coord)
    for place in reversed(path):
        shape = shape if reads[place].identity else layers[place].output_shape(shape)
    return shape


def _by_weights(spec: LayerSpec) -> Shape | None:
    """Return the output shape for rows of features, with the width of the first weight that accepts it."""
    width = width_by_weights(spec)
    return None if width is None else spec.output_shape((ROWS, width))


def width_by_weights(spec: LayerSpec) -> int | None:
    """Return the features of a row that a layer reads, by the first of its weights that it accepts; None: unknown."""
    for param in spec.params():
        try:
            spec.output_shape((ROWS, param.shape[-1]))
        except ShapeError:
            continue
        return param.shape[-1]
    return None


def follow_shared(layers: Mapping[Coord, LayerSpec], links: tuple[Link, ...]) -> dict[str, str]:
    """Return key of every shared parameter → key of the parameter that owns the weights; follows chains to their end.

    Raises
    ------
    SpecError : a name is unknown, shapes differ, a parameter is shared twice, or sharing is circular
    """
    direct: dict[str, str] = {}
    for link in links:
        if link.kind != "shared":
            continue
        theirs = {p.name: p.shape for p in layers[link.source].tensors()}
        mine = {p.name: p.shape for p in layers[link.target].tensors()}
        names = [(n, n) for n in mine] if link.param is None else [(link.param, link.source_param)]
        for name, source_name in names:
            what = f"shared link {link.source}/{source_name} → {link.target}/{name}"
            if name not in mine or source_name not in theirs:
                raise SpecError(f"{what}: unknown parameter")
            if mine[name] != theirs[source_name]:
                raise SpecError(f"{what}: shapes {theirs[source_name]} and {mine[name]} differ")
            key = f"{link.target}/{name}"
            if key in direct:
                raise SpecError(f"{what}: the target already shares {direct[key]}")
            direct[key] = f"{link.source}/{source_name}"
    ends: dict[str, str] = {}
    for key in direct:
        _follow(key, direct, ends)
    return ends


def _follow(key: str, direct: Mapping[str, str], ends: dict[str, str]) -> None:
    """Add the owner of `key` and of all keys on the path to it to `ends`: each link is followed once."""
    passed: dict[str, None] = {}
    while key in direct and key not in ends:
        if key in passed:
            raise SpecError("shared links form a loop: " + " → ".join([*passed, key]))
        passed[key] = None
        key = direct[key]
    ends |= dict.fromkeys(passed, ends.get(key, key))
