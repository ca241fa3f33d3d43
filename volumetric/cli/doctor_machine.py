"""Probes of the machine: system, processor, threads, memory, power."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Final

from volumetric.cli.doctor_probe import Section, size_text

_GIB: Final = 1 << 30
_CGROUP: Final = Path("/sys/fs/cgroup")
_FREQUENCY: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_SUPPLIES: Final = Path("/sys/class/power_supply")
_FEATURES: Final = "avx2 fma f16c avx512f avx512bw avx512_vnni avx_vnni avx512_bf16 amx_int8 neon asimd sve i8mm bf16"


def read_system(section: Section) -> None:
    """Operating system, processor, and the instructions that kernels use."""
    section.facts["system"] = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if hasattr(platform, "freedesktop_os_release"):
        with suppress(OSError):
            section.facts["distribution"] = platform.freedesktop_os_release().get("PRETTY_NAME", "?")
    fields: dict[str, str] = {}
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    section.facts["processor"] = fields.get("model name") or platform.processor() or platform.machine()
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    if flags:
        section.facts["instructions"] = " ".join(name for name in _FEATURES.split() if name in flags) or "none of note"
    if flags and platform.machine() == "x86_64" and "avx2" not in flags:
        section.find(
            "slow", "the processor has no AVX2", "kernels use narrower vectors; nothing can be done in software"
        )
    if "hypervisor" in flags:
        section.facts["virtual machine"] = "yes"


def read_threads(section: Section) -> None:
    """CPUs of the machine, and how many of them this process may use."""
    from volumetric.devices.cpu.cpu_count import default_threads, usable_cpus

    present, usable = os.cpu_count() or 1, usable_cpus()
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    section.facts["CPUs"] = f"{present}, of them {usable} usable; {default_threads()} threads by default"
    quota = _read(_CGROUP / "cpu.max").strip()
    if quota:
        section.facts["cpu.max of the cgroup"] = quota
    if usable < present:
        by = (
            "the affinity of this process (taskset, a batch system)"
            if allowed <= usable
            else "the quota of its container"
        )
        section.find("slow", f"{usable} of {present} CPUs are allowed, by {by}", "start it with more CPUs")
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        section.facts["load"] = f"{load:.1f}"
        if load > usable + 0.5:
            section.find(
                "slow",
                f"other programs are running: the load is {load:.1f} for {usable} CPUs",
                "all measurements above are of a busy machine; end other programs",
            )


def read_memory(section: Section) -> None:
    """Memory that is there, free, and allowed."""
    from volumetric.generate.process_memory import available_bytes

    free = available_bytes()
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        section.facts["memory"] = size_text(total) + ("" if free is None else f", {size_text(free)} free")
    limit = _read(_CGROUP / "memory.max").strip()
    if limit.isdigit():
        section.facts["memory.max of the cgroup"] = size_text(int(limit))
        used = _read(_CGROUP / "memory.current").strip()
        if used.isdigit() and int(limit) - int(used) < _GIB:
            section.find("slow", f"the container allows {size_text(int(limit))} of memory, and most of it is used",
                         "raise its limit: a process that exceeds it is killed")  # fmt: skip
    if free is not None and free < _GIB:
        section.find("slow", f"only {size_text(free)} of memory are free", "end other programs, or use smaller models")


def read_power(section: Section) -> None:
    """Power saving, as far as the system tells."""
    governor, driver = (_read(_FREQUENCY / name).strip() for name in ("scaling_governor", "scaling_driver"))
    profile = _read(Path("/sys/firmware/acpi/platform_profile")).strip()
    if governor:
        section.facts["frequency"] = f"{governor} ({driver})"
    if profile:
        section.facts["profile"] = profile
    # With these drivers "powersave" is the usual one, and changes its frequency with the load.
    saving = governor == "powersave" and not driver.startswith(("intel_pstate", "amd-pstate-epp"))
    if saving or profile == "low-power":
        section.find(
            "slow", "the processor saves power", "choose the profile performance: powerprofilesctl set performance"
        )
    if _SUPPLIES.is_dir():
        mains = [
            _read(path / "online").strip() for path in _SUPPLIES.iterdir() if _read(path / "type").strip() == "Mains"
        ]
        if mains and "1" not in mains:
            section.facts["power"] = "battery"
            section.find(
                "slow", "the machine runs on its battery", "connect it: most processors are slower on a battery"
            )
    if not section.facts:
        section.facts["power"] = "not told by the system"


def _read(path: Path) -> str:
    """Return the text of a file; nothing if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
