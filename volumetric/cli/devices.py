"""The command ``devices``: the devices of this machine, and the choice of ``auto``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.flags import as_flags
from volumetric.cli.options import OutputOptions
from volumetric.devices.named_devices import examine_device, explain_auto, list_devices


def devices(
    *,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """List the devices of this machine, and the default one.

    Parameters
    ----------
    json : bool
        Print a JSON object with all details: limits, features, drivers, and a test of opening each GPU.
    """
    output.apply()
    infos = list_devices()
    if json or output.verbose:
        infos = [examine_device(info) for info in infos]
    chosen, reason = explain_auto(infos)
    reason = as_flags(reason, "devices")
    if json:
        described = {"auto": chosen, "reason": reason, "devices": [asdict(info) for info in infos]}
        console.write_json(described, indent=2)
        return exits.OK
    rows = [
        ["*" if info.name == chosen else "", info.name, info.description + " (software)" * info.software]
        for info in infos
    ]
    console.table(("", "device", "description"), rows)
    console.write(f"auto is {chosen}: {reason}\n")
    if output.verbose:
        for info in infos:
            console.write(f"\n{info.name}\n")
            console.write("".join(_detail_lines(info.details)))
    return exits.OK


def _detail_lines(details: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    """Yield a line for each detail; details of details are indented below their name."""
    for name, value in details.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:\n"
            yield from _detail_lines(value, indent + "  ")
        else:
            yield f"{indent}{name}: {value}\n"
