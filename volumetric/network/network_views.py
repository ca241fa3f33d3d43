"""How networks show themselves, and how their layers are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from volumetric.base.errors import ArgumentError, MissingKeyError, UnknownAttributeError
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.network.grid import Coord, CoordLike
from volumetric.network.wiring import places_of

if TYPE_CHECKING:
    from volumetric.base.text_table import TextTable
    from volumetric.layers import LayerSpec
    from volumetric.network.network import Network
    from volumetric.network.weight_store import WeightStore

_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("predict", "forward", "apply"), "a network has no weights: predict(network, params, x)"),
    **dict.fromkeys(("fit", "train", "compile"), "volumetric.train.train(network, x, y) trains it"),
    **dict.fromkeys(
        ("parameters", "weights", "state_dict", "init", "trainable_variables", "get_weights"),
        "weights are separate: params = initialise(network)",
    ),
    **dict.fromkeys(("to", "cuda", "cpu", "half"), 'a device is named where it runs: device="cpu"'),
    **dict.fromkeys(("add", "append", "add_module"), "a network is immutable: network.with_layer(coord, spec)"),
    "save": "train(…).save(name) saves a network with its weights; to_json() is its text",
}
"""Attribute of networks in other packages → the way here."""


class NetworkViews:
    """Methods of `Network` for ``print``, notebooks, and lookups such as ``network["1.0.0.2"]``."""

    __slots__ = ()

    def summary(self, params: Mapping[str, WeightStore] | None = None) -> TextTable:
        """Return the table that ``print(network)`` shows; with `params` also their types and size."""
        from volumetric.network.network_table import network_table

        return network_table(_network(self), params)

    def scope(self, params: Mapping[str, WeightStore] | None = None, rows: Any = None) -> ScopePage:
        """Return a page of the layers in space: `show` opens it in a browser, `save` writes it as one HTML file.

        Parameters
        ----------
        params : weights, which the page then has down to single numbers, as far as they are few
        rows : rows of one sequence, ``[1, T, …]`` or a dict by input, whose activity is recorded

        Examples
        --------
        >>> network.scope(params, rows).save("network.html")  # doctest: +SKIP
        """
        return page_of("network", self, params=params, rows=rows)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        from volumetric.network.network_table import network_line, parameter_count

        return f"<Network: {network_line(_network(self))}, {parameter_count(_network(self)):,} parameters>"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.summary()._repr_html_()

    def __getitem__(self, coord: CoordLike) -> LayerSpec:
        """Return the layer at a coordinate: ``network["1.0.0.2"]``, ``network[1, 0, 0, 2]``, ``network[1]``."""
        at = Coord.of(coord)
        if at not in _network(self).layers:
            raise MissingKeyError(f"there is no layer at {at}", hint=places_of(_network(self).layers))
        return _network(self).layers[at]

    def __iter__(self) -> Iterator[LayerSpec]:
        """Yield the layers in reading order."""
        return iter(_network(self).layers.values())

    def __len__(self) -> int:
        return len(_network(self).layers)

    if not TYPE_CHECKING:  # type checkers should refuse what these refuse

        def __call__(self, *_: object, **__: object) -> Any:
            raise ArgumentError("a network is not called", hint=_ELSEWHERE["predict"])

        def __getattr__(self, name: str) -> Any:
            raise UnknownAttributeError(f"'Network' object has no attribute {name!r}", hint=_ELSEWHERE.get(name))


def _network(views: NetworkViews) -> Network:
    return cast("Network", views)  # no other class has these methods
