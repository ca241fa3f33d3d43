"""A network as a table: what ``print(network)`` shows, and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from volumetric.base._typing import ROWS
from volumetric.base.progress import byte_size
from volumetric.base.text_table import TextTable
from volumetric.layers.layer_spec import show_shape
from volumetric.network.grid import Coord, Link
from volumetric.network.layer_rows import layer_rows
from volumetric.network.network import OUTPUT, Network
from volumetric.network.weight_store import WeightStore

_LINKS = 6
"""Most links that are listed one by one."""


def network_table(
    network: Network,
    params: Mapping[str, WeightStore] | None = None,
    *,
    clocks: Mapping[Coord, object] | None = None,
    title: str | None = None,
) -> TextTable:
    """Return a table of layers, with inputs, outputs, links and the number of parameters below.

    Parameters
    ----------
    params : its weights, for a column with their types, and their size
    clocks : layer → its clock, for a column with them
    title : line above; None: the network in one line
    """
    rows = layer_rows(network, params, clocks)
    columns = ["where", "layer", "input → output", "parameters"]
    columns += ["dtype"] * (params is not None) + ["clock"] * bool(clocks)
    cells: list[tuple[str, ...]] = []
    for row in rows:
        times = f" × {row.places}" if row.places > 1 and row.weights else ""
        line = [
            row.where,
            row.label + (f", {row.activation}" if row.activation else ""),
            f"{show_shape(row.input)} → {show_shape(row.output)}",
            f"{row.weights:,}{times}" if row.weights else "",
            *([", ".join(row.dtypes)] if params is not None else []),
            *([row.clock] if clocks else []),
        ]
        cells.append(tuple(line))
    return TextTable(
        title=network_line(network) if title is None else title,
        columns=tuple(columns),
        rows=tuple(cells),
        right=frozenset({"parameters"}),
        notes=(*_ends(network), *_links(network.links), _total(network, params)),
    )


def network_line(network: Network) -> str:
    """Return a network in one line: ``3 layers on a grid of 3×1×1×1, [T, 2] → [T, 1]``."""
    count = len(network.layers)
    output = network.shapes[network.taps[OUTPUT]]
    return (
        f"{count} layer{'' if count == 1 else 's'} on a grid of {'×'.join(map(str, network.grid.sides))}, "
        f"{show_shape((ROWS, *network.input_shape))} → {show_shape(output)}"
    )


def parameter_count(network: Network) -> int:
    """Return the number of trained numbers of a network: buffers do not count, shared ones count once."""
    return sum(prod(spec.shape) for spec in network.param_specs().values() if not spec.buffer)


def _ends(network: Network) -> list[str]:
    """Return lines about the inputs and outputs."""
    inputs = [
        f"{name} {port.dtype} {show_shape((ROWS, *port.shape))} at {port.coord}" for name, port in network.ports.items()
    ]
    outputs = [f"{name} {show_shape(network.shapes[at])} of {at}" for name, at in network.taps.items()]
    return [f"inputs: {', '.join(inputs)}", f"outputs: {', '.join(outputs)}"]


def _links(links: tuple[Link, ...]) -> list[str]:
    """Return lines about the links: a few in full, many as counts."""
    if not links:
        return []
    if len(links) <= _LINKS:
        return ["links: " + ", ".join(map(_link, links))]
    counts = Counter((link.kind, link.delay) for link in links)
    parts = [f"{count:,} {kind}{f' with delay {delay}' if delay else ''}" for (kind, delay), count in counts.items()]
    return [f"links: {', '.join(parts)}"]


def _link(link: Link) -> str:
    what = "weights of " if link.kind == "shared" else ""
    how = [link.combine] * (link.kind == "activation" and link.combine == "add")
    how += [f"delay {link.delay}"] * bool(link.delay)
    return f"{what}{link.source} → {link.target}" + (f" ({', '.join(how)})" if how else "")


def _total(network: Network, params: Mapping[str, WeightStore] | None) -> str:
    size = "" if params is None else f" in {byte_size(sum(store.nbytes for store in params.values()))}"
    return f"total: {parameter_count(network):,} parameters{size}"
