"""Clocked ↔ JSON."""

from __future__ import annotations

from typing import Any, get_type_hints

from volumetric.clocked import Clocked, Every
from volumetric.errors import SpecError
from volumetric.grid import Coord
from volumetric.network import Network
from volumetric.network_json import (
    check_head,
    convert,
    expect_keys,
    network_from_dict,
    network_to_dict,
    read_text,
    to_text,
)

FORMAT = "volumetric.clocked"
VERSION = 1
_KEYS = ("format", "version", "network", "clocks", "hold", "start")


def clocked_to_json(clocked: Clocked, *, network: bool = True) -> str:
    """Return JSON text with sorted coordinates; `network` says whether the network is part of it."""
    data: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    if network:
        data["network"] = network_to_dict(clocked.network)
    clocks = sorted(clocked.clocks.items())
    data["clocks"] = {str(coord): {"period": every.period, "phase": every.phase} for coord, every in clocks}
    data["hold"] = dict(clocked.hold)
    data["start"] = clocked.start
    return to_text(data)


def clocked_from_json(text: str | bytes, network: Network | None = None) -> Clocked:
    """Inverse of `clocked_to_json`; `network` is the one that the text leaves out."""
    data = read_text(text, "clocked")
    check_head(data, _KEYS, "clocked", form=FORMAT, version=VERSION)
    if "network" in data:
        own = _network(data["network"])
        if network is not None and network != own:
            raise SpecError("$.network: it is not the network that was given", hint="give none, or leave it out here")
        network = own
    if network is None:
        raise SpecError("$.network: the text has none", hint="give the network that it was written for")
    clocks = convert(data.get("clocks", {}), dict[str, dict[str, Any]], "$.clocks")
    hints = get_type_hints(Clocked)
    hold = convert(data.get("hold", {}), dict[str, str], "$.hold")
    start = convert(data.get("start", "zeros"), hints["start"], "$.start")
    every = {Coord.parse(coord): _every(given, f"$.clocks.{coord}") for coord, given in clocks.items()}
    return Clocked(network=network, clocks=every, hold=hold, start=start)  # pyright: ignore[reportArgumentType]  (it checks what is held)


def _network(data: Any) -> Network:
    try:
        return network_from_dict(data)
    except SpecError as error:
        raise SpecError(f"$.network: {error}", hint=error.hint) from None


def _every(data: dict[str, Any], where: str) -> Every:
    expect_keys(data, ("period", "phase"), where)
    if "period" not in data:
        raise SpecError(f"{where}: a clock needs a period")
    given = {name: convert(value, int, f"{where}.{name}") for name, value in data.items()}
    try:
        return Every(**given)
    except SpecError as error:
        raise SpecError(f"{where}: {error}", hint=error.hint) from None
