"""Network: the immutable structure of a volume of layers. The constructor validates it and infers all shapes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from volumetric.base._typing import ROWS, Shape
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import ArgumentError, CheckpointError, ShapeError, SpecError, VolumetricError
from volumetric.base.hints import format_value
from volumetric.layers import LayerSpec, ParamSpec
from volumetric.layers.initial_values import check_init, initial_value, is_drawn
from volumetric.network.grid import Coord, Grid, Link, Port, check_name
from volumetric.network.network_views import NetworkViews
from volumetric.network.weight_store import Params, WeightStore
from volumetric.network.wiring import Source, Wire, carries_ids, follow_shared, own_output, places_of, wire

if TYPE_CHECKING:
    from volumetric.network.network_morph import NetworkMorph, Targets

_EXAMPLE = "Dense(in_features=2, out_features=1)"
INPUT, OUTPUT = "input", "output"
"""Names of the input of the first layer of a network, and of the output of its last layer."""


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Network(NetworkViews):
    """Layers at coordinates of a grid, run in reading order, with links in addition to the chain.

    Attributes
    ----------
    layers : coordinate → layer spec; a slot without a layer passes its input on. Or a list of layers, for the first
        slots of the grid in reading order; without a grid, one layer per plane. Coordinates, here and below, may also
        be tuples, such as ``(1, 0, 0, 2)``, and strings, such as ``"1.0.0.2"``
    grid : the volume; by default the smallest that has all layers
    links : activation links and shared weights
    disabled : coordinates whose layer acts as the identity
    input_shape : shape of one row of input: ``()`` for token ids, ``(features,)`` for features
    input_dtype : ``"int32"`` for token ids, else ``"float32"``; by default the one that `input_shape` suggests
    inputs : additional inputs by name; the input of the first layer is called ``"input"``
    outputs : additional outputs: name → layer whose output is returned. The output of the last layer is called
        ``"output"``, unless this mapping uses that name for another layer

    Raises
    ------
    SpecError, ShapeError : the network is invalid; the message names the coordinate and the layer
    """

    layers: Mapping[Coord, LayerSpec] = field(default_factory=dict, kw_only=False)
    grid: Grid = None  # pyright: ignore[reportAssignmentType]  (known once the layers are)
    links: tuple[Link, ...] = ()
    disabled: frozenset[Coord] = frozenset()
    input_shape: Shape = ()
    input_dtype: Literal["int32", "float32"] = None  # pyright: ignore[reportAssignmentType]  (known by the shape)
    inputs: Mapping[str, Port] = field(default_factory=dict)
    outputs: Mapping[str, Coord] = field(default_factory=dict)
    wires: tuple[Wire, ...] = field(init=False, repr=False, compare=False)
    shapes: Mapping[Coord, Shape] = field(init=False, repr=False, compare=False)
    """Output shape of every layer; the first axis, `ROWS`, is free."""
    reads: Mapping[Coord, Shape] = field(init=False, repr=False, compare=False)
    """Input shape of every layer."""
    _shared: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _last: Coord = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # lists of layers, and tuples and strings as coordinates, are accepted, too

        def __init__(
            self,
            layers: Mapping[Any, LayerSpec] | Sequence[LayerSpec],
            *,
            grid: Grid = ...,
            links: Sequence[Link] = ...,
            disabled: Collection[Any] = ...,
            input_shape: Sequence[int] | int = ...,
            input_dtype: Literal["int32", "float32"] = ...,
            inputs: Mapping[str, Port] = ...,
            outputs: Mapping[str, Any] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Order the layers, resolve the links and infer the shapes."""
        ordered = _place_layers(self.layers, self.grid)
        if not ordered:
            raise SpecError(
                "a network needs at least one layer", hint="write layers=[Dense(in_features=2, out_features=1)]"
            )
        if self.grid is None:
            object.__setattr__(self, "grid", _smallest_grid(ordered))
        links = (self.links,) if isinstance(self.links, Link) else tuple(self.links)
        odd = next((link for link in links if not isinstance(link, Link)), None)
        if odd is not None:
            raise SpecError(
                f"links: expected a Link, got {odd!r:.60}",
                hint="write Link((0,), (1,)), which reads the output at 0.0.0.0 at the layer 1.0.0.0",
            )
        object.__setattr__(self, "links", links)
        object.__setattr__(self, "disabled", frozenset(map(Coord.of, self.disabled)))
        object.__setattr__(self, "outputs", {name: Coord.of(coord) for name, coord in dict(self.outputs).items()})
        shape = self.input_shape
        object.__setattr__(self, "input_shape", (shape,) if isinstance(shape, int) else tuple(shape))
        dtype: Any = self.input_dtype
        if dtype is None:
            dtype = "float32" if self.input_shape else "int32"
        elif isinstance(dtype, type):
            dtype = np.dtype(dtype).name  # np.float32
        object.__setattr__(self, "input_dtype", dtype)
        for coord in (*ordered, *self.disabled, *(c for link in self.links for c in (link.source, link.target))):
            self.grid.index(coord)
        object.__setattr__(self, "layers", MappingProxyType(ordered))
        object.__setattr__(self, "_last", tuple(ordered)[-1])
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        object.__setattr__(self, "outputs", MappingProxyType(dict(self.outputs)))
        self._check_ends()
        object.__setattr__(self, "wires", wire(ordered, self.links, self.disabled, self.inputs))
        read, shapes = self._infer()
        object.__setattr__(self, "reads", MappingProxyType(read))
        object.__setattr__(self, "shapes", MappingProxyType(shapes))
        object.__setattr__(self, "_shared", follow_shared(ordered, self.links))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments; the new network infers the rest. Layers of your own need their module."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        plain = {name: dict(own[name]) for name in ("layers", "inputs", "outputs")}
        return functools.partial(type(self), **own | plain), ()

    @property
    def ports(self) -> dict[str, Port]:
        """All inputs by name, ``"input"`` first."""
        first = next(iter(self.layers))
        return {INPUT: Port(coord=first, shape=self.input_shape, dtype=self.input_dtype), **self.inputs}

    @property
    def taps(self) -> dict[str, Coord]:
        """All outputs by name, ``"output"`` first: the layers that compute them."""
        return {OUTPUT: self._last, **self.outputs}

    def _check_ends(self) -> None:
        """Check the names of inputs and outputs, and that a layer computes each output."""
        for name in self.inputs:
            check_name(name, "an input")
            if name == INPUT:
                raise SpecError(
                    f"{INPUT!r} is the input of the first layer, and cannot name an additional input",
                    hint="set its shape by input_shape and input_dtype, or use another name",
                )
        for name, coord in self.outputs.items():
            check_name(name, "an output")
            if coord not in self.layers:
                raise SpecError(f"output {name!r}: there is no layer at {coord}", hint=places_of(self.layers))

    def _infer(self) -> tuple[dict[Coord, Shape], dict[Coord, Shape]]:
        """Return the input and output shapes of layers."""
        ports, wires = self.ports, {w.coord: w for w in self.wires}
        read: dict[Coord, Shape] = {}
        shapes: dict[Coord, Shape] = {}

        def shape_of(source: Source) -> Shape:
            if source.coord is None:
                return (ROWS, *ports[source.port].shape)
            return shapes[source.coord] if source.side == "output" else read[source.coord]

        def name(w: Wire, error: VolumetricError) -> ShapeError:
            sources = ", ".join(map(str, w.inputs))
            kind = self.layers[w.coord].kind
            return ShapeError(f"{kind} at {w.coord} (reads {sources}): {error}", hint=error.hint)

        for w in self.wires:
            spec = self.layers[w.coord]
            try:
                known = [(s, shape_of(s)) for s in w.inputs if s.coord is None or s.coord < w.coord]
                # All inputs of a layer have one shape; if it reads only later layers, their shape is inferred.
                read[w.coord] = _common_shape(known) if known else self._shape_of_loop(w)
                skip = () if w.skip is None else (shape_of(w.skip),)
                shapes[w.coord] = read[w.coord] if w.identity else spec.output_shape(read[w.coord], *skip)
            except VolumetricError as error:
                raise name(w, error) from None
        for w in self.wires:
            try:
                _common_shape([(w.inputs[0], read[w.coord]), *((s, shape_of(s)) for s in w.inputs)])
                if len(w.inputs) > 1:
                    _no_ids([source for source in w.inputs if carries_ids(source, wires, ports)])
            except VolumetricError as error:
                raise name(w, error) from None
        return read, shapes

    def _shape_of_loop(self, w: Wire) -> Shape:
        """Return the input shape of a layer that reads only later layers."""
        [coord, *_] = [source.coord for source in w.inputs if source.coord is not None]
        return own_output(coord, self.layers, self.wires, self.ports)

    def param_specs(self) -> dict[str, ParamSpec]:
        """Key → spec of every stored tensor of the network; shared ones appear only at their source.

        Buffers, which layers change themselves, are included.
        """
        return {key: spec for key, spec in self._all_params() if key not in self._shared}

    def _all_params(self) -> Iterator[tuple[str, ParamSpec]]:
        for coord, spec in self.layers.items():
            for param in spec.tensors():
                yield f"{coord}/{param.name}", param

    def resolve(self, key: str) -> str:
        """Return the key under which a parameter is stored, following shared links."""
        return self._shared.get(key, key)

    def with_layer(self, coord: Coord, spec: LayerSpec | None) -> Network:
        """Return a copy with `spec` at `coord`, or without a layer there."""
        coord = Coord.of(coord)
        layers = {c: s for c, s in self.layers.items() if c != coord}
        if spec is not None:
            layers[coord] = spec
        return dataclasses.replace(self, layers=layers)

    def with_link(self, link: Link) -> Network:
        """Return a copy with one more link."""
        return dataclasses.replace(self, links=(*self.links, link))

    def morph(
        self,
        params: Mapping[str, WeightStore],
        dtype: Targets,
        scheme: str | None = None,
        *,
        keep_masters: bool = True,
    ) -> NetworkMorph:
        """Convert weights of this network to other numeric types, in place. An error changes nothing.

        Matrices, filters and tables are converted; gains and biases are unchanged. The source is the float32 master of
        a tensor if there is one, else its stored values. A shared tensor is converted once.

        Parameters
        ----------
        params : weights of this network
        dtype : ``"int4"``, ``"q8_0"``, ``"bf16"`` … for all layers, or coordinate → such a type for some
        scheme : how codes are scaled, ``"g64"``, ``"row"`` or ``"g32:f32"``; None: the type's default, or the scheme
            in `dtype`, such as ``"int4:g64"``
        keep_masters : keep the float32 values in addition to the new form, so that converting back restores their
            bits; they take 4 bytes per weight. If False, existing masters are dropped.

        Returns
        -------
        NetworkMorph
            for each layer, and for all together: NMSE, cosine, largest difference, bits per weight

        Raises
        ------
        SpecError : a coordinate is outside of the grid, has no layer or a layer without weights, or two coordinates
            request different forms of a tensor that they share
        DTypeError : a type or scheme is unknown, or cannot hold NaN or an infinity that a tensor has
        CheckpointError : `params` lacks a tensor

        Examples
        --------
        >>> from volumetric import Coord, Grid, Network, initialise
        >>> from volumetric.layers import Dense
        >>> network = Network(
        ...     grid=Grid(1), layers={Coord(0): Dense(in_features=64, out_features=8)}, input_shape=(64,),
        ...     input_dtype="float32",
        ... )
        >>> report = network.morph(initialise(network), {"0.0.0.0": "int4"}, "g64")
        >>> report.layers[0].bits_per_weight, report.error.cosine > 0.99
        (4.25, True)
        """
        from volumetric.network.network_morph import morph

        return morph(self, params, dtype, scheme, keep_masters=keep_masters)

    def to_json(self) -> str:
        """Return JSON text for `from_json`; equal networks give equal bytes."""
        from volumetric.network.network_json import network_to_json

        return network_to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Network:
        """Read the JSON of `to_json`. Raises `SpecError` with the path of an unknown or ill-typed value."""
        from volumetric.network.network_json import network_from_json

        return network_from_json(text)


def _place_layers(layers: Mapping[Coord, LayerSpec] | Sequence[LayerSpec], grid: Grid | None) -> dict[Coord, LayerSpec]:
    """Return layers by coordinate, in reading order."""
    if isinstance(layers, LayerSpec):
        layers = [layers]
    if not isinstance(layers, Mapping):
        if grid is not None and len(layers) > len(grid):
            sides = "×".join(map(str, grid.sides))
            raise SpecError(
                f"{len(layers)} layers do not fit a grid of {sides}", hint="omit the grid to get one that fits"
            )
        places = map(Coord, range(len(layers))) if grid is None else iter(grid)
        layers = dict(zip(places, layers, strict=False))
    placed = {Coord.of(coord): spec for coord, spec in layers.items()}
    for coord, spec in placed.items():
        if not isinstance(spec, LayerSpec):
            example = f"{spec.__name__}(…)" if isinstance(spec, type) else _EXAMPLE
            raise SpecError(f"layer at {coord}: expected a layer, got {spec!r:.60}", hint=f"write {example}")
    return dict(sorted(placed.items()))


def _smallest_grid(layers: Mapping[Coord, LayerSpec]) -> Grid:
    """Return the smallest grid that has all layers."""
    sides = zip(*((c.z, c.y, c.x, c.slot) for c in layers), strict=True)
    return Grid(*(max(side) + 1 for side in sides))


def _common_shape(shapes: list[tuple[Source, Shape]]) -> Shape:
    """Return the shape of values that are summed; raise `ShapeError` if they differ."""
    source, shape = shapes[0]
    for other, its in shapes[1:]:
        if its != shape:
            raise ShapeError(f"cannot add {other} of shape {its} to {source} of shape {shape}")
    return shape


def _no_ids(sources: list[Source]) -> None:
    """Raise `ShapeError` if any of the summed values is ids."""
    if sources:
        raise ShapeError(
            f"cannot add to {sources[0]}: it is ids", hint="read ids by separate layers, and add their outputs"
        )


def initialise(network: Network, seed: int = 0, *, init: Mapping[str, str] = MappingProxyType({})) -> Params:
    """Return initial parameters. Each tensor has a separate random stream, independent of the order.

    Parameters
    ----------
    init : pattern of keys, as ``"*weight"`` or ``"0.0.0.0/*"``, → name of initial values, in place of those of the
        layer: of the engine (see `ParamSpec`), or of an `initialiser`. Of several patterns the last one counts

    Raises
    ------
    ArgumentError : `network` is not a network, or `seed` is not a whole number of at least 0
    SpecError : a pattern matches no parameter, or a name is unknown
    """
    if not isinstance(network, Network):
        raise ArgumentError(
            f"initialise: expected a network, got {type(network).__name__}", hint="call initialise(network)"
        )
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ArgumentError(
            f"initialise: seed must be a whole number of at least 0, got {format_value(seed)}",
            hint="for example seed=1",
        )
    stores: dict[str, WeightStore] = {}
    idle = np.random.Generator(np.random.Philox(seed))
    for key, spec in _with_init(network.param_specs(), init).items():
        rng = idle
        if is_drawn(spec):  # creating a stream takes longer than filling most tensors
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=tuple(key.encode()))))
        stores[key] = WeightStore.from_array(initial_value(spec, rng))
    return Params(stores)


def _with_init(specs: Mapping[str, ParamSpec], init: Mapping[str, str]) -> Mapping[str, ParamSpec]:
    """Return the specs of parameters with other initial values."""
    if not init:
        return specs
    from fnmatch import fnmatchcase

    changed = dict(specs)
    for pattern, name in init.items():
        check_init(name, f"init {pattern!r}")
        keys = [key for key in specs if fnmatchcase(key, pattern)]
        if not keys:
            raise SpecError(f"init: no parameter matches {pattern!r}", hint="for example " + ", ".join(list(specs)[:3]))
        changed |= {key: dataclasses.replace(specs[key], init=name, around=0.0) for key in keys}
    return changed


def check_params(network: Network, params: Mapping[str, WeightStore]) -> None:
    """Raise `CheckpointError` with the missing, unexpected or mis-shaped tensors of `params`."""
    specs = network.param_specs()
    problems = [f"missing {key}" for key in specs if key not in params]
    problems += [f"unexpected {key}" for key in params if key not in specs]
    problems += [
        f"{key} has shape {params[key].shape}, expected {spec.shape}"
        for key, spec in specs.items()
        if key in params and params[key].shape != spec.shape
    ]
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise CheckpointError(
            "parameters do not fit the network: " + "; ".join(problems[:5]) + more,
            hint="initialise(network) returns new ones; load(…).params are those of a model",
        )
