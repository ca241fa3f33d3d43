"""DNA of a network: a signature of each layer in plain numbers, independent of the dtype of the weights.

The signature of a layer is the vector of all its parameters, in canonical order. Layers of more than `SKETCH` elements
store a sketch of it instead: element i is added, with a random sign, to bin ``i mod SKETCH``. This is a count sketch
(Charikar, Chen & Farach-Colton 2002) with a plain bin function: inner products of sketches are unbiased estimates of
those of the vectors, and the cosine of two unrelated layers has a standard deviation of ``1/√SKETCH``, 0.016. Two
versions of one layer are far closer, because their sketches differ only by the sketch of their difference.

The signature of a fabric has the parameters of its nodes, each at its position in the fabric with all nodes, and zeros
for missing or masked nodes. So fabrics that differ only in their nodes can be compared, and a masked node counts as
missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Shape
from volumetric.base.errors import VolumetricError
from volumetric.base.rng import generator
from volumetric.dtypes import decode
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_entries import param_entries
from volumetric.layers import LayerSpec, Parallel, ParamSpec
from volumetric.layers.initial_values import fixed_start
from volumetric.network import Network
from volumetric.network.weight_store import WeightStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One layer without children, or a container's own parameters.

    Attributes
    ----------
    path : coordinate, then the positions inside containers: ``"1.0.0.2"``, ``"1.0.0.2/0/1"``; a gate is ``…/gate``, and
        parts of a program are ``…/edges.<name>``, ``…/regions.<name>`` and so on
    spec : the layer
    tensors : its own parameters and buffers in canonical order, without those of inner layers
    keys : name of each tensor → its key in `Params`, after following shared links
    part : kind of a part of a program, as ``"edge cross"``; only parts of the same kind are comparable
    """

    path: str
    spec: LayerSpec
    tensors: tuple[ParamSpec, ...]
    keys: dict[str, str]
    part: str = ""

    @property
    def kind(self) -> str:
        """Kind of the layer, or of the program part."""
        return " ".join(filter(None, (self.spec.kind, self.part)))

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        """Its own parameters in canonical order."""
        return tuple(spec for spec in self.tensors if not spec.buffer)


def leaves(network: Network) -> Iterator[Leaf]:
    """Yield the leaves of the enabled layers of `network` in reading order."""
    for coord, spec in network.layers.items():
        if coord not in network.disabled:
            for path, leaf, own in _layers_below(str(coord), spec):
                keys = {param.name: network.resolve(f"{path}/{param.name}") for param in own}
                if leaf.kind == "program":
                    yield from _parts(path, leaf, own, keys)
                else:
                    yield Leaf(path=path, spec=leaf, tensors=own, keys=keys)


def _parts(path: str, spec: LayerSpec, own: tuple[ParamSpec, ...], keys: dict[str, str]) -> Iterator[Leaf]:
    """Yield the regions, edges and ports of a program that have weights."""
    from volumetric.evolution.programs.program_change import kind_of_part, parts_of
    from volumetric.program.layer.program_layer import Program

    assert isinstance(spec, Program)
    for part, names in parts_of(spec).items():
        inside = tuple(param for param in own if param.name in names)
        own_keys = {param.name: keys[param.name] for param in inside}
        yield Leaf(path=f"{path}/{part}", spec=spec, tensors=inside, keys=own_keys, part=kind_of_part(spec, part))


def _layers_below(path: str, spec: LayerSpec) -> Iterator[tuple[str, LayerSpec, tuple[ParamSpec, ...]]]:
    children = spec.children()
    if isinstance(spec, Parallel) and spec.gate is not None:
        children["gate"] = spec.gate
    for name, child in children.items():
        yield from _layers_below(f"{path}/{name}", child)
    inside = tuple(f"{name}/" for name in children)
    own = tuple(tensor for tensor in spec.tensors() if not tensor.name.startswith(inside))
    if own or not children:
        yield path, spec, own


SKETCH = 4096
"""Maximum length of a signature."""
_PIECE = 512 * SKETCH
"""Elements decoded at a time: 8 MiB of float32."""
_SIGNS = 0x5149_4E53
"""Seed of the signs, the same for every layer, so that layers at different positions can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The compared values of one layer.

    Attributes
    ----------
    kind : kind of the layer
    shapes : shapes of its parameters; only layers of equal kind and shapes can be compared
    vector : float32 ``[n]``, of length 1; zeros for a `neutral` layer
    """

    kind: str
    shapes: tuple[Shape, ...]
    vector: NDArray[np.float32]

    @property
    def neutral(self) -> bool:
        """Whether the layer has nothing to compare: no weights, or only constant ones, as the gains of a fresh norm."""
        return not self.vector.any()

    def similarity(self, other: Signature) -> float | None:
        """Return the cosine with `other`, in -1 … 1; 0 if kinds or shapes differ, None if both are neutral."""
        if (self.kind, self.shapes) != (other.kind, other.shapes):
            return 0.0
        if self.neutral and other.neutral:
            return None
        return float(np.clip(self.vector @ other.vector, -1.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class DNA:
    """Signatures of all leaves of a network by path (see `leaves`), in reading order."""

    signatures: Mapping[str, Signature]

    def __len__(self) -> int:
        return len(self.signatures)


def extract_dna(network: Network, params: Mapping[str, WeightStore]) -> DNA:
    """Read every weight of `network` once, in chunks, and return its DNA.

    Vectors that are never stored in low-bit types, such as the gains of norms, enter as their deviation from their
    mean: gains are positive in every model, which would make unrelated norms similar. If all fresh layers begin with
    the same numbers, as forget gates do, the deviation from these is used. A fabric is read node by node, with zeros
    for nodes that are masked or `without`. A program has a signature for each of its regions, edges and ports with
    parameters.

    Raises
    ------
    VolumetricError
        A weight is missing from `params`, or is not finite.
    """
    return DNA(signatures={leaf.path: _signature(leaf, params) for leaf in leaves(network)})


def _signature(leaf: Leaf, params: Mapping[str, WeightStore]) -> Signature:
    fabric = leaf.spec.kind == "fabric"
    for name in (spec.name for spec in (leaf.tensors if fabric else leaf.params)):
        if leaf.keys[name] not in params:
            raise VolumetricError(f"{name} of {leaf.kind} at {leaf.path} has no weight", hint=f"key {leaf.keys[name]}")
    specs, spec_values = leaf.params, ((spec, values) for spec in leaf.params for values in _pieces(leaf, spec, params))
    if fabric:
        specs = whole_params(leaf)
        if lacks_nodes(leaf, params):
            spec_values = ((s, _deviation(v, s, n).ravel()) for s, v, n in living_values(leaf, params))
    sketch = np.zeros(min(sum(prod(spec.shape) for spec in specs), SKETCH), np.float64)
    at = 0
    for spec, values in spec_values:
        if not np.isfinite(values).all():
            raise VolumetricError(f"{leaf.keys[spec.name]} holds NaN or infinity", hint="use finite weights")
        _add(sketch, values, at)
        at += values.size
    norm = float(np.sqrt(sketch @ sketch))
    vector = (sketch / norm if norm > 0 else sketch).astype(np.float32)
    return Signature(kind=leaf.kind, shapes=tuple(spec.shape for spec in specs), vector=vector)


def _pieces(leaf: Leaf, spec: ParamSpec, params: Mapping[str, WeightStore]) -> Iterator[NDArray[np.float32]]:
    """Yield the compared values of a tensor in order, in flat chunks."""
    store = params[leaf.keys[spec.name]]
    if not spec.packable:
        yield _deviation(store.values(), spec, None).ravel()
        return
    width = store.shape[-1] if store.shape else 1
    for packed in store.row_blocks(max(_PIECE // max(width, 1), 1)):
        yield decode(packed, np.float32).ravel()
    store.release()


def _deviation(values: NDArray[np.float32], spec: ParamSpec, some: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """Return the compared values of a tensor in which only the elements `some` count; the others are 0."""
    if spec.packable:
        return values
    begun = fixed_start(spec)
    apart = values if begun is None else values - begun
    own = apart.ravel() if some is None else apart[some]
    if own.size == 0 or bool((own == own[0]).all()):  # equal values may differ from their rounded mean
        return np.zeros_like(values)
    centred = apart - own.mean(dtype=np.float64).astype(np.float32)
    return centred if some is None else np.where(some, centred, np.float32(0))


def _add(sketch: NDArray[np.float64], values: NDArray[np.float32], at: int) -> None:
    """Add the elements ``at, at + 1, …`` of a layer to its sketch."""
    size = len(sketch)
    if size < SKETCH:  # the whole layer fits without sketching
        sketch[at : at + values.size] = values
        return
    first, last = at // SKETCH, -(-(at + values.size) // SKETCH)
    padded = np.zeros((last - first) * SKETCH, np.float32)
    padded[at - first * SKETCH :][: values.size] = values
    table = padded.reshape(-1, SKETCH)
    for row, signs in zip(table, _sign_rows(first, last), strict=True):
        row *= signs
    sketch += table.sum(axis=0, dtype=np.float64)


def _sign_rows(first: int, last: int) -> Iterator[NDArray[np.float32]]:
    """Yield the signs of the bins for each run of `SKETCH` elements, from a table built in blocks."""
    block: NDArray[np.float32] | None = None
    for row in range(first, last):
        number, within = divmod(row, _BLOCK)
        if block is None or within == 0:
            block = _sign_block(number)
        yield block[within]


_BLOCK = 64
"""Rows of signs from one stream of random bits."""


def _sign_block(number: int) -> NDArray[np.float32]:
    bits = np.unpackbits(np.frombuffer(generator(_SIGNS, number).bytes(_BLOCK * SKETCH // 8), np.uint8))
    return (2.0 * bits.reshape(_BLOCK, SKETCH) - 1.0).astype(np.float32)


def whole_params(leaf: Leaf) -> tuple[ParamSpec, ...]:
    """Return the parameters of a fabric with all nodes of its graph."""
    assert isinstance(leaf.spec, Fabric)
    return dataclasses.replace(leaf.spec, without=()).params()


def lacks_nodes(leaf: Leaf, params: Mapping[str, WeightStore]) -> bool:
    """Whether a layer is a fabric with missing or masked nodes."""
    spec = leaf.spec
    if not isinstance(spec, Fabric):
        return False
    return bool(spec.without) or (spec.dynamic and not params[leaf.keys["living"]].values().all())


def living_values(
    leaf: Leaf, params: Mapping[str, WeightStore]
) -> Iterator[tuple[ParamSpec, NDArray[np.float32], NDArray[np.bool_]]]:
    """Yield each parameter with zeros for inactive nodes, and a mask of its active elements."""
    spec = leaf.spec
    assert isinstance(spec, Fabric)
    whole = dataclasses.replace(spec, without=())
    facts = spec.facts
    there = params[leaf.keys["living"]].values() != 0 if spec.dynamic else np.ones(len(facts.order), bool)
    gone = np.setdiff1d(whole.facts.order, facts.order[there])
    before, after = param_entries(spec), param_entries(whole)
    for of in whole.params():
        values = params[leaf.keys[of.name]].values()
        lives = np.ones(of.shape, bool)
        if of.name in after:
            entries = after[of.name]
            values = entries.carry_over(values, before[of.name], np.zeros(of.shape, np.float32))
            lives &= ~entries.mask(entries.entries_of(gone), values)
        yield of, np.where(lives, values, np.float32(0)), lives
