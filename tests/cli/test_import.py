"""The package face: light to import, complete when used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import volumetric

PARTS = {
    "analysis": "accuracy",
    "builders": "sequential",
    "dtypes": "encode",
    "errors": "DeviceError",
    "evolution": "Population",
    "layers": "Dense",
    "loaders": "save_native",
    "observe": "LogObserver",
    "rng": "generator",
    "run": "RunOptions",
    "train": "train",
    "viz": "draw_network",
}
"""Part of the package → something in it, as ``volumetric.part.name``."""
HEAVY = ("numba", "wgpu", "jinja2", "rich", "tokenizers", "huggingface_hub", "gguf", "cyclopts", "numpy")
RARE = (
    "volumetric.analysis.clustering",
    "volumetric.builders",
    "volumetric.clocked",
    "volumetric.evolution",
    "volumetric.generate.drafters",
    "volumetric.generate.text_encoder",
    "volumetric.devices.cpu.kernels.row_cells",
    "volumetric.devices.cpu.kernels.graph",
    "volumetric.devices.cpu.kernels.mixtures.expert_routes",
    "volumetric.devices.cpu.kernels.scans",
    "volumetric.layers.conv",
    "volumetric.layers.pooling",
    "volumetric.layers.slstm",
    "volumetric.detect",
    "volumetric.fabric",
    "volumetric.program",
    "volumetric.loaders.gguf_tokenizer",
    "volumetric.loaders.hf_export",
    "volumetric.loaders.native_checkpoint",
    "volumetric.loaders.peft",
    "volumetric.devices.cpu.graph",
    "volumetric.devices.cpu.rows.experts",
    "volumetric.devices.cpu.rows.recurrent",
    "volumetric.devices.cpu.rows.state_space",
    "volumetric.devices.gpu",
    "volumetric.graph.differentiate",
    "volumetric.graph.operations.training",
    "volumetric.graph.interpret",
    "volumetric.layers.gumbel_softmax",
    "volumetric.train",
    "wgpu",
)
"""What a model of attention and products that generates on the CPU has no use for."""
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


@pytest.mark.thorough
def test_every_part_is_there_without_an_import_of_its_own():
    names = ", ".join(f"volumetric.{part}.{name}" for part, name in PARTS.items())
    assert run_python(f"import volumetric; print(len([{names}, volumetric.predict]))").strip() == str(len(PARTS) + 1)
    found = {name for name in dir(volumetric) if isinstance(getattr(volumetric, name), ModuleType)}
    assert set(PARTS) <= found


def test_opening_the_reference_device_loads_no_compiler_and_no_gpu():
    code = "import sys, volumetric; volumetric.open_device('reference'); print({'numba', 'wgpu'} & set(sys.modules))"
    assert run_python(code).strip() == "set()"


def test_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "volumetric", "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == volumetric.__version__


def test_the_public_generate_face_matches_its_stub():
    package = importlib.import_module("volumetric.generate")
    assert {"load", "Model", "Session", "SamplingParams"} <= set(package.__all__)


@pytest.mark.thorough
def test_generating_on_the_cpu_imports_what_the_model_needs():
    model = ROOT / "tests" / "fixtures" / "hf_tiny" / "llama"
    arguments = ["generate", str(model), "--device", "cpu", "--threads", "1", "--prompt", "Hi", "-n", "2", "--json"]
    run = f"import sys; from volumetric.cli import main; main({arguments})"
    code = f"{run}; print([m for m in {RARE} if m in sys.modules])"
    assert run_python(code).splitlines()[-1] == "[]"
