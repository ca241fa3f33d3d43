"""Types as a user's checker sees them: strict settings on scripts, and no unknown type on the public API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "typed_scripts"
INTERNAL = ("kernels",)
"""Packages whose functions numba types from their calls; nothing of them is exported."""


@pytest.fixture(scope="module")
def python() -> Iterator[Path]:
    """A virtual environment that has the package as an installed one: checkers trust its annotations alone."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        packages = next(Path(folder).glob("[Ll]ib/**/site-packages"))
        (packages / "volumetric").symlink_to(ROOT / "volumetric", target_is_directory=True)
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        yield next(Path(folder).glob("bin/python"))


def check(python: Path, *arguments: str, cwd: Path) -> dict[str, Any]:
    """Run basedpyright, and return its report."""
    program = Path(sys.executable).with_name("basedpyright")
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(python.parents[1])}
    done = subprocess.run(
        [program, "--outputjson", *arguments], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    return json.loads(done.stdout)


def errors_of(python: Path, folder: Path, scripts: list[Path]) -> list[str]:
    """Return what strict settings report of scripts."""
    config = {"include": [str(path) for path in scripts], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    report = check(python, "--pythonpath", str(python), "--project", str(folder), cwd=folder)
    assert report["summary"]["filesAnalyzed"] == len(scripts)
    return [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in report["generalDiagnostics"]
    ]


def test_a_script_that_trains_is_clean_in_strict_mode(python: Path, tmp_path: Path) -> None:
    assert errors_of(python, tmp_path, [SCRIPTS / "train_a_net.py"]) == []


def test_strict_mode_finds_a_wrong_type(python: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import volumetric\n\nmodel: int = volumetric.load('a')\n", encoding="utf-8")
    assert any('"Model" is not assignable to "int"' in error for error in errors_of(python, tmp_path, [wrong]))


@pytest.mark.thorough
def test_scripts_of_users_are_clean_in_strict_mode(python: Path, tmp_path: Path) -> None:
    assert errors_of(python, tmp_path, sorted(SCRIPTS.glob("*.py"))) == []


@pytest.mark.thorough
def test_public_names_have_complete_types(python: Path, tmp_path: Path) -> None:
    report = check(python, "--verifytypes", "volumetric", "--ignoreexternal", cwd=tmp_path)["typeCompleteness"]
    assert report["completenessScore"] > 0.97
    public = [symbol for symbol in report["symbols"] if not set(INTERNAL) & set(symbol["name"].split("."))]
    assert len(public) > 10_000
    unknown = [symbol["name"] for symbol in public if not symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]]
    assert unknown == []
