"""The package face: light to import, complete when used."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import volumetric

HEAVY = ("numba", "wgpu", "jinja2", "rich", "tokenizers", "huggingface_hub", "gguf", "cyclopts", "numpy")
ROOT = Path(volumetric.__file__).parents[1]


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_import_loads_nothing_heavy():
    loaded = run_python(f"import sys, volumetric; print([m for m in {HEAVY} if m in sys.modules])")
    assert loaded.strip() == "[]"


@pytest.mark.parametrize("name", sorted(dir(volumetric)))
def test_every_public_name_can_be_imported(name):
    assert getattr(volumetric, name) is not None


def test_opening_the_reference_device_loads_no_compiler_and_no_gpu():
    code = "import sys, volumetric; volumetric.open_device('reference'); print({'numba', 'wgpu'} & set(sys.modules))"
    assert run_python(code).strip() == "set()"


def test_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert volumetric.__version__ == project["version"]


def test_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "volumetric", "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == volumetric.__version__


def test_the_public_generate_face_matches_its_stub():
    package = importlib.import_module("volumetric.generate")
    assert {"load", "Model", "Session", "SamplingParams"} <= set(package.__all__)
