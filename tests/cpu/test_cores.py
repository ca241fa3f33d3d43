"""How many threads a process takes by default."""

from __future__ import annotations

import pytest

from volumetric.devices.cpu import cpu_count


@pytest.fixture
def system(tmp_path, monkeypatch):
    """An invented machine: files of the system, and the affinity mask."""
    monkeypatch.setattr(cpu_count, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(cpu_count, "_TOPOLOGY", tmp_path / "cpu")

    def build(*, siblings: list[str], allowed: set[int], files: dict[str, str]) -> None:
        monkeypatch.setattr(cpu_count, "_allowed_cpus", lambda: allowed)
        for cpu, text in enumerate(siblings):
            path = tmp_path / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list"
            path.parent.mkdir(parents=True)
            path.write_text(text + "\n")
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    return build


@pytest.mark.parametrize(
    ("siblings", "allowed", "files", "want"),
    [
        (["0", "1"], {0, 1}, {}, 2),
        (["0-1", "0-1", "2-3", "2-3"], {0, 1, 2, 3}, {}, 2),
        (["0-1", "0-1", "2-3", "2-3"], {0, 1}, {}, 1),
        (["0", "1", "2", "3"], {0, 1, 2, 3}, {"cpu.max": "150000 100000"}, 2),
        (["0", "1", "2", "3"], {0, 1, 2, 3}, {"cpu.max": "max 100000"}, 4),
        (["0", "1"], {0, 1}, {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        (["0", "1"], {0, 1}, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 2),
    ],
)
def test_default_threads(system, siblings, allowed, files, want):
    system(siblings=siblings, allowed=allowed, files=files)
    assert cpu_count.default_threads() == want


def test_unknown_topology_counts_cpus(system):
    system(siblings=[], allowed={0, 1, 2}, files={})
    assert cpu_count.default_threads() == 3
