"""The number of threads a process should use."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_TOPOLOGY = Path("/sys/devices/system/cpu")


def default_threads() -> int:
    """Physical cores that the process may use, by affinity, hyper-threads and container quota."""
    allowed = _allowed_cpus()
    return _within_quota(_physical_cores(allowed) if allowed else (os.cpu_count() or 1))


def usable_cpus() -> int:
    """CPUs that the process may use, including hyper-threads: the maximum number of threads running at once."""
    return _within_quota(len(_allowed_cpus()) or os.cpu_count() or 1)


def _within_quota(cpus: int) -> int:
    quota = _quota()
    return max(1, cpus if quota is None else min(cpus, quota))


def _allowed_cpus() -> set[int]:
    """CPUs of the affinity mask; empty if the system has none."""
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set()


def _physical_cores(allowed: set[int]) -> int:
    """Distinct cores among `allowed`; two hyper-threads share the vector units, so a second only slows the first."""
    cores = set()
    for cpu in allowed:
        siblings = _read(_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list")
        cores.add(siblings or str(cpu))
    return len(cores)


def _quota() -> int | None:
    """CPUs of the container's quota, rounded up; None without a quota."""
    fields = (_read(_CGROUP / "cpu.max") or "").split()
    if len(fields) != 2:
        fields = [
            _read(_CGROUP / "cpu" / "cpu.cfs_quota_us") or "max",
            _read(_CGROUP / "cpu" / "cpu.cfs_period_us") or "",
        ]
    limit, period = fields
    if not limit.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return max(1, -(-int(limit) // int(period)))


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
