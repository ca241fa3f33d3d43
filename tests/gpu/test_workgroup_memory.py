"""No kernel relies on the zeros that WebGPU puts into workgroup memory: an implementation may leave them out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.modules import covering, modules
from tests.gpu.uninitialised_memory import soiled

ROOT = Path(__file__).parents[2]
ON_ROWS = (
    "matmul", "matrix_units", "matrix_attention", "rowwise", "attention", "drawing", "recurrent", "mixtures", "greedy",
)  # fmt: skip
ON_GRAPHS = ("fake_quant", "half_products", "ops", "products", "program", "row_sums")
"""Files with tests of kernels that have workgroup memory; other files run none that these do not."""


@pytest.mark.thorough
def test_every_workgroup_variable_begins_with_garbage() -> None:
    soiled_modules = 0
    for module in covering(modules()):
        linked = module.link()
        count = linked.text.count("var<workgroup>")
        assert soiled(linked).text.count("for (var soil = ") == count
        soiled_modules += count > 0
    assert soiled_modules > 100


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_results_do_not_depend_on_zeroed_workgroup_memory() -> None:
    files = [
        *(f"tests/gpu/test_{name}.py" for name in ON_ROWS),
        *(f"tests/gpu_graph/test_{name}.py" for name in ON_GRAPHS),
    ]
    arguments = ["-q", "-n", "0", "--quick", "-p", "no:cacheprovider", "-p", "tests.gpu.uninitialised_memory"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
