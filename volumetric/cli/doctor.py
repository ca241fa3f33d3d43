"""The command ``doctor``: one report about this machine, to read or to paste into an issue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.doctor_devices import read_devices, read_speed
from volumetric.cli.doctor_machine import read_memory, read_power, read_system, read_threads
from volumetric.cli.doctor_probe import Finding, Section, run_probe, without_home
from volumetric.cli.doctor_software import read_extras, read_plugins, read_variables, read_versions
from volumetric.cli.doctor_storage import read_downloads, read_kernels
from volumetric.cli.options import OutputOptions

PROBES: dict[str, dict[str, Callable[[Section], None]]] = {
    "versions": {"packages": read_versions},
    "machine": {"system": read_system, "threads": read_threads, "memory": read_memory, "power": read_power},
    "devices": {"devices": read_devices},
    "speed": {"speed": read_speed},
    "stored": {"kernels": read_kernels, "downloads": read_downloads},
    "environment variables": {"variables": read_variables},
    "extras": {"extras": read_extras},
    "plug-ins": {"plug-ins": read_plugins},
}
"""Section → its probes. Kernels are counted after the measurement, which compiles some."""
_ORDER = ("broken", "slow", "note")


def doctor(
    *,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Report versions, devices, caches, and what is slow or broken on this machine.

    The report can be pasted into an issue: it has no host name, no keys, and the home directory as ~. The exit code is
    1 if something keeps the engine from working, else 0.

    Parameters
    ----------
    json : bool
        Print the report as one JSON object.
    """
    output.apply()
    with console.progress("examining this machine…"):
        sections = list(examine())
    findings = sorted((each for one in sections for each in one.findings), key=lambda each: _ORDER.index(each.severity))
    broken = any(each.severity == "broken" for each in findings)
    if json:
        report: dict[str, Any] = {one.title: one.facts for one in sections}
        console.write_json(without_home({**report, "findings": [asdict(each) for each in findings]}), indent=2)
    else:
        console.write(without_home(_text(sections, findings)))
    return exits.FAILED if broken else exits.OK


def examine() -> Iterator[Section]:
    """Yield the sections of the report."""
    for title, probes in PROBES.items():
        section = Section(title)
        for label, probe in probes.items():
            run_probe(section, label, probe)
        yield section


def _text(sections: list[Section], findings: list[Finding]) -> str:
    lines = []
    for section in sections:
        width = max(map(len, section.facts), default=0)
        lines.append(section.title)
        lines += [f"  {label:<{width}}  {value}" for label, value in section.facts.items()]
        lines.append("")
    lines.append("findings")
    for each in findings:
        lines += [f"  {each.severity:<6}  {each.what}", f"          → {each.advice}"]
    if not findings:
        lines.append("  nothing is broken, and nothing makes this machine slower than it could be")
    return "\n".join(lines) + "\n"
