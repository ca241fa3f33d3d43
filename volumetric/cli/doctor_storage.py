"""Probes of what is stored: compiled kernels, downloaded models, free disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from volumetric.cli.doctor_probe import Section, size_text

_NETWORK: Final = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")
"""Beginnings of the types of mounts whose files are elsewhere."""
_LITTLE: Final = 1 << 30
"""Bytes on a disk below which a model hardly fits."""
_KERNEL: Final = ".nbc"
"""Ending of a compiled kernel of Numba."""


def read_kernels(section: Section) -> None:
    """The cache of compiled kernels."""
    import platformdirs

    from volumetric.devices.cpu.kernels.jit import cache_root

    place = platformdirs.user_cache_path("volumetric", appauthor=False)
    root = cache_root()
    section.facts["caches"] = str(place)
    if root is None:
        off = os.environ.get("VOLUMETRIC_JIT_CACHE") == "0"
        section.facts["kernels"] = "not stored: VOLUMETRIC_JIT_CACHE=0" if off else "not stored: cannot be written"
        section.find(
            "slow",
            "VOLUMETRIC_JIT_CACHE=0: compiled kernels are not stored" if off else f"{place} cannot be written",
            "unset it; every start compiles all kernels anew"
            if off
            else "give yourself the rights, or set "
            "XDG_CACHE_HOME to a directory that can be written; every start compiles all kernels anew",
        )
        return
    kernels = [path.stat().st_size for path in root.rglob(f"*{_KERNEL}")]
    section.facts["kernels"] = f"{len(kernels):,} compiled, {size_text(sum(kernels))}, can be written"
    if not kernels:
        section.find("slow", "no kernel is compiled yet", "the first runs compile what they need and are slower; "
                     "volumetric warmup MODEL does it ahead of time")  # fmt: skip
    _look_at_disk(section, root, "kernels")


def read_downloads(section: Section) -> None:
    """The cache of the Hugging Face Hub."""
    place = hub_cache()
    section.facts["models of the Hub"] = str(place)
    if place.is_dir():
        names = sorted(path.name.removeprefix("models--") for path in place.glob("models--*"))
        section.facts["downloaded"] = f"{len(names)} models"
        if not os.access(place, os.W_OK):
            section.find("note", f"{place} cannot be written", "downloads fail; set HF_HOME to another directory")
    else:
        section.facts["downloaded"] = "none"
    _look_at_disk(section, place, "downloads")


def hub_cache() -> Path:
    """Return the directory of downloaded models, by the variables that the Hub's library reads."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(named).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(os.environ.get("HF_HOME") or cache / "huggingface").expanduser() / "hub"


def _look_at_disk(section: Section, place: Path, what: str) -> None:
    """Tell the free bytes and the kind of mount of a directory."""
    there = next(path for path in (place, *place.parents) if path.exists())
    free = shutil.disk_usage(there).free
    kind = mount_type(there, _mounts())
    section.facts[f"disk of {what}"] = f"{size_text(free)} free" + (f", {kind}" if kind else "")
    if free < _LITTLE:
        section.find("slow", f"only {size_text(free)} are free where {what} are stored ({there})", "remove old files")
    if kind.startswith(_NETWORK):
        variable = "XDG_CACHE_HOME" if what == "kernels" else "HF_HOME"
        section.find("slow", f"{what} are stored on a network mount ({kind})", f"set {variable} to a local directory")


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(errors="replace")
    except OSError:
        return ""


def mount_type(place: Path, mounts: str) -> str:
    """Return the type of the mount that a directory is on, from lines of ``/proc/mounts``; nothing if unknown."""
    whole, best, kind = place.resolve(), -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        if whole.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind
