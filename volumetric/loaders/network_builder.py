"""Chain: places layers in the grid, plane by plane, and records which tensor of a checkpoint fills each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from volumetric.layers import LayerSpec, Residual
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint, NameRule
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid, Link, Port


@dataclass(frozen=True, slots=True)
class FusedTensor:
    """A tensor of the checkpoint that contains a parameter as a part."""

    name: str
    part: FusedRows


@dataclass(frozen=True, slots=True)
class StackedTensor(FusedTensor):
    """A part of a tensor ``[count, in, out]`` with exactly this name, or of the biases ``{name}_bias [count, out]``."""


@dataclass(frozen=True, slots=True)
class InterleavedHeads:
    """A query or key projection whose rows alternate between the rotary halves, for each of `heads` heads."""

    name: str
    heads: int


@dataclass(frozen=True, slots=True)
class PerHeadVector:
    """A vector of all heads, as a matrix with a row for each head; rows are interleaved as in `InterleavedHeads`."""

    name: str
    heads: int
    interleaved: bool = False


StoredForm: TypeAlias = str | FusedTensor | InterleavedHeads | PerHeadVector
"""Source of a parameter in a checkpoint: a tensor by name, a part of a tensor, or a tensor in another order or
shape."""


def _interleaved_heads(stored: StoredForm) -> int | None:
    """Number of heads whose rotary halves alternate in the stored tensor."""
    if isinstance(stored, InterleavedHeads):
        return stored.heads
    return stored.heads if isinstance(stored, PerHeadVector) and stored.interleaved else None


class CheckpointNetworkBuilder:
    """A network under construction. Each plane of the grid is one block; its layers use the slots in order."""

    def __init__(self) -> None:
        self._layers: dict[Coord, LayerSpec] = {}
        self._links: list[Link] = []
        self._inputs: dict[str, Port] = {}
        self._rules: list[NameRule] = []
        self._tied: dict[str, str] = {}
        self._z, self._slot = 0, 0

    def next_plane(self) -> None:
        """Go to the next plane."""
        self._z, self._slot = self._z + 1, 0

    def add(
        self,
        spec: LayerSpec,
        prefix: str = "",
        names: Mapping[str, StoredForm] | None = None,
        *,
        transposed: bool = False,
    ) -> Coord:
        """Place a layer in the next slot, with the tensors that fill it.

        Parameters
        ----------
        prefix : prefix of the tensors' names
        names : first part of a parameter's path → source in the checkpoint; ``{"q": "q_proj"}`` fills ``q.weight`` from
            ``{prefix}.q_proj.weight``. Parts not listed keep their names.
        transposed : whether matrices are stored as ``[in, out]``

        Returns
        -------
        Coordinate of the layer
        """
        coord = Coord(self._z, 0, 0, self._slot)
        self._layers[coord] = spec
        self._slot += 1
        for param in spec.params():
            first, dot, rest = param.name.partition(".")
            stored = (names or {}).get(first, first)
            name = stored if isinstance(stored, str) else stored.name
            bare = isinstance(stored, StackedTensor)
            if bare:
                dot, rest = ("", "") if rest == "weight" else ("_", rest)
            self._rules.append(
                NameRule(
                    key=f"{coord}/{param.name}",
                    source=f"{prefix}.{name}{dot}{rest}".removeprefix("."),
                    part=stored.part if isinstance(stored, FusedTensor) else None,
                    transposed=(transposed or bare) and len(param.shape) > 1,
                    interleaved_heads=_interleaved_heads(stored),
                    rows=stored.heads if isinstance(stored, PerHeadVector) else 0,
                )
            )
        return coord

    def residual(self, source: Coord) -> Coord:
        """Add the output of the layer at `source`."""
        return self.add(Residual(source=str(source)))

    def set_source(self, source: Coord, target: Coord, combine: Literal["replace", "add"] = "replace") -> None:
        """Make the layer at `target` read the output of `source` instead of the layer before it, or the sum of both."""
        self._links.append(Link(kind="activation", source=source, target=target, combine=combine))

    def input(self, name: str, port: Port) -> None:
        """Add an input to the network."""
        self._inputs[name] = port

    def tie(self, source: Coord, target: Coord, source_param: str = "weight") -> None:
        """Tie the weight of `target` to that of `source`; its rule is removed and recorded as tied."""
        self._links.append(Link(kind="shared", source=source, target=target, param="weight", source_param=source_param))
        sources = {rule.key: rule.source for rule in self._rules}
        self._tied[sources[f"{target}/weight"]] = sources[f"{source}/{source_param}"]
        self._rules = [rule for rule in self._rules if rule.key != f"{target}/weight"]

    def blueprint(
        self,
        *,
        context_length: int,
        ignored: tuple[str, ...] = (),
        prefix: str = "",
        features: int | None = None,
        hidden: Coord | None = None,
    ) -> ModelBlueprint:
        """Return the `ModelBlueprint`. With `features`, the network reads rows of so many features, else token ids."""
        slots = 1 + max(coord.slot for coord in self._layers)
        grid, links = Grid(self._z + 1, 1, 1, slots), tuple(self._links)
        if features is None:
            network = Network(grid=grid, layers=self._layers, links=links, inputs=self._inputs)
        else:
            network = Network(
                grid=grid, layers=self._layers, links=links, input_shape=(features,), input_dtype="float32"
            )
        return ModelBlueprint(
            network=network,
            rules=tuple(self._rules),
            ignored=ignored,
            tied=self._tied,
            prefix=prefix,
            context_length=context_length,
            hidden=hidden,
        )
