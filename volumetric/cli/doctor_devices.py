"""Probes of devices, and of how fast this machine computes, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.cli.doctor_probe import Section, run_python

_SECONDS: Final = 60.0
_IMPORT: Final = "import time; b = time.perf_counter(); import volumetric; print(time.perf_counter() - b)"
_SLOW_IMPORT: Final = 1.0
"""Seconds for `import volumetric` above which something is wrong: a slow disk or a virus scanner."""
_SLOW_MEMORY: Final = 5.0
"""GB/s below which memory is slower than that of any usual machine."""
_SHOWN: Final = {
    "driver": "driver",
    "max_binding_mib": "largest storage binding (MiB)",
    "max_buffer_mib": "largest buffer (MiB)",
    "f16": "f16",
    "matrix_units": "matrix units",
    "subgroups": "subgroups",
    "loop_rounds": "rounds of a loop",
    "webgpu": "WebGPU",
    "error": "error",
    "threads": "threads",
    "dot": "dot products",
    "amx": "AMX",
}
"""Detail of a device → its label."""


def read_devices(section: Section) -> None:
    """Devices with their drivers and limits, as `volumetric devices --json` tells them."""
    from volumetric.base.errors import DeviceError
    from volumetric.devices.named_devices import VARIABLE, check_name

    unset: tuple[str, ...] = ()
    try:
        check_name("auto")
    except DeviceError:  # a finding of its own, which does not keep devices from being listed
        unset = (VARIABLE,)
    try:
        listed: dict[str, Any] = run_python(["-m", "volumetric", "devices", "--json"], _SECONDS, unset=unset)
    except RuntimeError as error:
        section.facts["devices"] = f"cannot be listed: {error}"
        section.find("broken", f"the devices cannot be listed: {error}",
                     "a driver of a GPU may crash; update it, or set VOLUMETRIC_DEVICE=cpu")  # fmt: skip
        return
    section.facts["auto"] = f"{listed['auto']}: {listed['reason']}"
    gpus = [device for device in listed["devices"] if device["kind"] == "gpu"]
    for device in listed["devices"]:
        software = " (a software driver: it computes on the CPU)" if device["software"] else ""
        section.facts[device["name"]] = device["description"] + software
        for name, label in _SHOWN.items():
            if name in device["details"]:
                section.facts[f"{device['name']} {label}"] = device["details"][name]
        for name, facts in device["details"].get("implementations", {}).items():
            section.facts[f"{device['name']} {name}"] = _implementation(facts)
        if "error" in device["details"]:
            section.find("note", f"{device['name']} cannot be opened: {device['details']['error']}",
                         "update its driver; until then it is not used")  # fmt: skip
    if gpus and all(device["software"] for device in gpus):
        section.find("note", "the only GPU is a software driver", "the CPU is used, which is faster; a real GPU needs "
                     "the driver of its maker")  # fmt: skip
    elif not gpus:
        section.find("note", "no GPU can be used", f"the CPU is used; {listed['reason']}")


def _implementation(facts: Mapping[str, Any]) -> str:
    """Return what a WebGPU implementation offers of a GPU, or why it cannot be used."""
    if "unusable" in facts:
        return f"cannot be used: {facts['unusable']}"
    features = [name.replace("_", " ") for name, value in facts.items() if value is True]
    sizes = f"bindings of {facts['max_binding_mib']} MiB, workgroups of {facts['workgroup_invocations']}"
    return f"{facts['version']}: {', '.join(features)}; {sizes}"


def read_speed(section: Section) -> None:
    """Time to import, memory bandwidth, a product of matrices, and a small network on the CPU's kernels."""
    try:
        seconds = float(run_python(["-c", _IMPORT], _SECONDS))
        measured: dict[str, Any] = run_python(["-m", "volumetric.cli.doctor_speed"], _SECONDS)
    except RuntimeError as error:
        section.facts["kernels of the CPU"] = f"failed: {error}"
        section.find("broken", f"a small network cannot be computed on the CPU: {error}",
                     "run python -m volumetric.cli.doctor_speed; --device reference may still work")  # fmt: skip
        return
    bandwidth, rate = measured["bandwidth"], measured["weights"] / measured["row"] / 1e9
    section.facts["import volumetric"] = f"{seconds:.2f} s"
    section.facts["memory bandwidth"] = f"{bandwidth:.1f} GB/s (a copy by NumPy)"
    section.facts["product by NumPy"] = f"{measured['product']:.0f} GFLOP/s (float32, 1024 × 1024)"
    section.facts["a network on the CPU"] = (
        f"{measured['row'] * 1e3:.2f} ms a row for 64 MiB of weights, {measured['begin']:.1f} s until the first row; "
        f"so a model of 1 GB decodes about {rate:.0f} tokens/s"
    )
    if seconds > _SLOW_IMPORT:
        section.find("slow", f"import volumetric takes {seconds:.1f} s", "the disk may be slow or a network mount, or "
                     "a virus scanner looks at each file: exclude the environment from it")  # fmt: skip
    if bandwidth < _SLOW_MEMORY:
        section.find("slow", f"memory moves {bandwidth:.1f} GB/s, which limits decoding", "smaller weights help most: "
                     "--dtype int4:g32; other programs may use the memory, too")  # fmt: skip
    if measured["error"] > 1e-4:
        section.find("broken", f"kernels of the CPU are wrong by {measured['error']:.1e}",
                     "report it with this text; --device reference computes without kernels")  # fmt: skip
