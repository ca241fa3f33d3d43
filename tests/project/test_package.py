"""Wheel and source distribution: what they contain, and what an installed wheel can do without a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import volumetric

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOP = re.compile(r"[^/]+/")


def tracked(*folders: str) -> set[str]:
    """Return the files that git tracks; in an unpacked source distribution, those that are there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode == 0:
        return {name for name in done.stdout.splitlines() if (ROOT / name).exists()}
    files = (path for folder in folders or (".",) for path in (ROOT / folder).rglob("*"))
    return {path.relative_to(ROOT).as_posix() for path in files if path.is_file() and "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that hatchling builds from the tree, in a process of its own."""
    return built(ROOT, "build_wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, "build_sdist", tmp_path_factory.mktemp("source"))


def built(tree: Path, hook: str, target: Path) -> Path:
    """Return the distribution that a hook of PEP 517 writes."""
    code = f"import hatchling.build as build; print(build.{hook}({str(target)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tree, check=True)
    return target / done.stdout.splitlines()[-1]


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel, without the list of their hashes, which follows from them."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def test_extra_all_has_every_extra() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    (everything,) = extras.pop("all")
    assert everything == f"volumetric-engine[{','.join(sorted(extras))}]"


def test_citation_has_the_version_of_the_package() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", text, re.MULTILINE)[1] == volumetric.__version__  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize("name", ["serve", "data", "viz"])
def test_image_installs_extras_that_exist(name: str) -> None:
    (extras,) = re.findall(r'"\.\[([a-z,]+)\]"', (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert name in extras.split(",")
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_image_is_built_from_files_that_exist() -> None:
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert copied
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name


def test_container_of_an_editor_uses_targets_of_make() -> None:
    command = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))["postCreateCommand"]
    program, *targets = command.split()
    assert program == "make"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.thorough
def test_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    files = contents(wheel)
    package = {name for name in files if name.startswith("volumetric/")}
    assert package == tracked("volumetric")
    rest = {TOP.sub("", name, count=1) for name in files.keys() - package}
    assert rest == {"METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    about = Parser().parsestr(files[f"volumetric_engine-{volumetric.__version__}.dist-info/METADATA"].decode())
    assert about["Version"] == volumetric.__version__
    assert set(about.get_all("Provides-Extra", [])) == PROJECT["optional-dependencies"].keys()
    readme = (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert str(about.get_payload()).strip() == readme


@pytest.mark.thorough
def test_source_has_what_tests_and_make_read_and_builds_the_same_wheel(
    source: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(source) as archive:
        names = {TOP.sub("", member.name, count=1) for member in archive if member.isfile()}
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            archive.extractall(tmp_path, filter="data")
        else:
            archive.extractall(tmp_path)
    assert names - {"PKG-INFO"} == tracked()
    (tree,) = tmp_path.iterdir()
    assert contents(built(tree, "build_wheel", tmp_path / "again")) == contents(wheel)


@pytest.mark.thorough
def test_installed_wheel_works_without_a_network(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    python = next(place.glob("bin/python"))
    environment = {"HOME": str(tmp_path), "PATH": os.defpath, "PIP_NO_INDEX": "1", "NO_COLOR": "1"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", wheel)
    packages = next(place.glob("lib/*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    home = run(python, "-c", "import volumetric; print(volumetric.__file__)").strip()
    assert home == str(packages / "volumetric/__init__.py")
    for name in PROJECT["scripts"]:
        assert run(place / "bin" / name, "--version").strip() == volumetric.__version__
    assert "Usage: volumetric" in run(place / "bin" / "volumetric", "--help")
    code = """
import volumetric
from volumetric.builders import sequential

network = sequential(2, 1, hidden=(4,))
rows = volumetric.predict(network, volumetric.initialise(network, seed=1), [[0.0, 1.0]], device="reference")
print(rows.shape)
"""
    assert run(python, "-c", code).strip() == "(1, 1)"
