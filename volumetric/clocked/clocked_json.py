"""`Clocked` networks to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from volumetric.base.config_tables import convert, expect_keys, record
from volumetric.base.errors import SpecError
from volumetric.clocked.machine import Clocked
from volumetric.layers.clock import Clock, Every
from volumetric.network import Network
from volumetric.network.grid import Coord
from volumetric.network.network_json import check_head, network_from_dict, network_to_dict, read_text, to_text

FORMAT = "volumetric.clocked"
VERSION = 2
_EARLIER = 1
"""An older version, in which each clock is an object with period and phase."""
_KEYS = ("format", "version", "network", "clocks", "hold", "start")


def clocked_to_json(clocked: Clocked, *, network: bool = True) -> str:
    """Return JSON text with sorted coordinates; includes the network if `network` is true."""
    data: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    if network:
        data["network"] = network_to_dict(clocked.network)
    data["clocks"] = {str(coord): str(clock) for coord, clock in sorted(clocked.clocks.items())}
    data["hold"] = dict(clocked.hold)
    data["start"] = clocked.start
    return to_text(data)


def clocked_from_json(text: str | bytes, network: Network | None = None) -> Clocked:
    """Read the text of `clocked_to_json`; pass `network` if the text does not contain it."""
    data = read_text(text, "clocked")
    earlier = isinstance(data, dict) and data.get("version") == _EARLIER
    check_head(data, _KEYS, "clocked", form=FORMAT, version=_EARLIER if earlier else VERSION)
    if "network" in data:
        own = _network(data["network"])
        if network is not None and network != own:
            raise SpecError("$.network: the text has another network than the one passed", hint="pass no network")
        network = own
    if network is None:
        raise SpecError("$.network: the text has no network", hint="pass the network that it was written for")
    clocks = convert(data.get("clocks", {}), dict[str, str | dict[str, Any]], "$.clocks")
    hints = get_type_hints(Clocked)
    hold = convert(data.get("hold", {}), dict[str, str], "$.hold")
    start = convert(data.get("start", "zeros"), hints["start"], "$.start")
    parsed_clocks = {Coord.parse(coord): clock_of(entry, f"$.clocks.{coord}") for coord, entry in clocks.items()}
    return Clocked(network=network, clocks=parsed_clocks, hold=hold, start=start)  # pyright: ignore[reportArgumentType]  (it checks what is held)


def _network(data: Any) -> Network:
    try:
        return network_from_dict(data)
    except SpecError as error:
        raise SpecError(f"$.network: {error}", hint=error.hint) from None


def clock_of(data: str | Mapping[str, Any], where: str) -> Clock:
    """Parse a clock from text, or from an object with period and phase as in older files.

    Raises
    ------
    SpecError : `data` is not a clock; the message begins with `where`
    """
    if not isinstance(data, str):
        expect_keys(data, ("period", "phase"), where, "an object")
        if "period" not in data:
            raise SpecError(f"{where}: a clock needs a period", hint="period = 2, or the text every(2)")
        return record(Every, data, where)
    try:
        return Clock.parse(data)
    except SpecError as error:
        raise SpecError(f"{where}: {error}", hint=error.hint) from None
