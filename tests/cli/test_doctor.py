"""The report of this machine: nothing private in it, no probe that ends it, and findings that are true."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from volumetric.cli import doctor as doctor_command
from volumetric.cli.doctor_probe import Section, run_probe, run_python, size_text, without_home
from volumetric.cli.doctor_software import read_extras, read_plugins, read_variables, read_versions, satisfies
from volumetric.cli.doctor_speed import measure
from volumetric.cli.doctor_storage import hub_cache, mount_type, read_downloads, read_kernels
from volumetric.devices.cpu.kernels import jit


def examined(probe) -> Section:
    section = Section("tried")
    run_probe(section, "failed", probe)
    return section


@pytest.fixture
def quick_report(monkeypatch):
    """The command without the probes that start processes."""
    kept_out = ("devices", "speed")
    probes = {title: each for title, each in doctor_command.PROBES.items() if title not in kept_out}
    monkeypatch.setattr(doctor_command, "PROBES", probes)
    return probes


def test_a_report_has_all_sections_and_nothing_private(quick_report, run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("VOLUMETRIC_API_KEY", "sk-secret")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "models"))
    code, out, _ = run("doctor")
    assert code == 0
    assert all(f"{title}\n" in out for title in (*quick_report, "findings"))
    assert str(tmp_path) not in out
    assert "secret" not in out
    assert "~/models" in out
    assert out.count("set, not shown") == 2
    code, out, _ = run("doctor", "--json")
    report = json.loads(out)
    assert report.keys() == {*quick_report, "findings"}
    assert str(tmp_path) not in out


def test_a_probe_that_fails_is_a_line(quick_report, run, monkeypatch):
    def fail(section: Section) -> None:
        section.facts["before"] = 1
        raise OSError("no such place")

    monkeypatch.setitem(quick_report, "machine", {"system": fail})
    code, out, _ = run("doctor", "--json")
    assert code == 0
    assert json.loads(out)["machine"] == {"before": 1, "system": "could not be read: OSError: no such place"}


def test_what_keeps_the_engine_from_working_is_exit_code_1(quick_report, run, monkeypatch):
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "cuda")
    code, out, _ = run("doctor")
    assert code == 1
    assert "broken  VOLUMETRIC_DEVICE: there is no device 'cuda'" in out


def test_a_process_that_crashes_hangs_or_fails_is_told():
    with pytest.raises(RuntimeError, match="signal 6"):
        run_python(["-c", "import os; os.abort()"], 60)
    with pytest.raises(RuntimeError, match="within 0 s"):
        run_python(["-c", "import time; time.sleep(60)"], 0.2)
    with pytest.raises(RuntimeError, match="error: why"):
        run_python(["-c", "import sys; sys.exit('error: why\\nhint: how')"], 60)


def test_a_cache_that_cannot_be_written_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "cache_root", lambda: None)
    assert [each.severity for each in examined(read_kernels).findings] == ["slow"]
    monkeypatch.setattr(jit, "cache_root", lambda: tmp_path)
    section = examined(read_kernels)
    assert section.facts["kernels"].startswith("0 compiled")
    assert "no kernel is compiled yet" in section.findings[0].what
    (tmp_path / "a.nbc").write_bytes(bytes(2048))
    section = examined(read_kernels)
    assert section.facts["kernels"] == "1 compiled, 2 KiB, can be written"
    assert not section.findings


def test_the_place_of_downloads_follows_the_variables(monkeypatch, tmp_path):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert hub_cache() == Path("~/.cache/huggingface/hub").expanduser()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub_cache() == tmp_path / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert hub_cache() == tmp_path / "home" / "hub"
    (hub_cache() / "models--a--b").mkdir(parents=True)
    assert examined(read_downloads).facts["downloaded"] == "1 models"


def test_the_longest_mount_point_counts():
    mounts = "a / ext4 rw\nb /data nfs4 rw\nc /data/with\\040space tmpfs rw\n"
    assert mount_type(Path("/home"), mounts) == "ext4"
    assert mount_type(Path("/data/cache"), mounts) == "nfs4"
    assert mount_type(Path("/database"), mounts) == "ext4"
    assert mount_type(Path("/data/with space/x"), mounts) == "tmpfs"
    assert mount_type(Path("/home"), "") == ""


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("2.1", ">=2.1", True),
        ("2.1.0", ">=2.1", True),
        ("2.10", ">=2.9", True),
        ("2.0.9", ">=2.1", False),
        ("0.69", "<0.69,>=0.68", False),
        ("0.68.1", "<0.69,>=0.68", True),
        ("1.0rc1", ">=1.0", True),
        ("1", "", True),
    ],
)
def test_versions_are_compared_as_numbers(version, wanted, fits):
    assert satisfies(version, wanted) == fits


def test_missing_and_old_packages_are_broken(monkeypatch):
    real = metadata.version

    def version(name: str) -> str:
        if name == "gguf":
            raise metadata.PackageNotFoundError(name)
        return "1.0" if name == "numpy" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    whats = [each.what for each in examined(read_versions).findings]
    assert len(whats) == 2
    assert any("gguf is not installed" in what for what in whats)
    assert any("numpy is 1.0" in what for what in whats)


def test_extras_are_listed_with_what_they_give():
    facts = examined(read_extras).facts
    assert facts["serve"].endswith("the HTTP server, and grammars")
    assert facts["serve"].startswith("installed")


def test_a_plug_in_that_fails_is_found(monkeypatch, tmp_path):
    info = tmp_path / "bad_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[volumetric.plugins]\nbad = bad_parts_module\ngood = json\n")
    (tmp_path / "bad_parts_module.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    section = examined(read_plugins)
    assert section.facts["plugins good"] == "bad-parts"
    assert section.facts["plugins bad"] == "bad-parts: fails: SystemExit: 3"
    assert len(section.findings) == 1


def test_a_kernel_switch_of_numba_is_found(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert "NUMBA_DISABLE_JIT" in examined(read_variables).findings[0].what


def test_texts(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert without_home({"a": [f"{tmp_path}/x", 1]}) == {"a": ["~/x", 1]}
    assert (size_text(10), size_text(3 << 20), size_text(3 << 31)) == ("10 B", "3 MiB", "6.0 GiB")


@pytest.mark.thorough
def test_the_measurement_agrees_with_numpy():
    measured = measure()
    assert measured["error"] < 1e-4
    assert measured["bandwidth"] > 0


@pytest.mark.thorough
def test_the_whole_report(run, monkeypatch):
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "reference")
    code, out, _ = run("doctor", "--json")
    report = json.loads(out)
    assert code == 0, report["findings"]
    assert report["devices"]["auto"].startswith("reference")
    assert "GB/s" in report["speed"]["memory bandwidth"]
