"""A cross-section of the tests on GPUs passes on Dawn, and Dawn compiles every kernel.

The whole suites run on Dawn with ``VOLUMETRIC_WEBGPU=dawn``, where the driver is one that Dawn takes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from tests.gpu.dawn_driver import ROOT, environment_or_skip

PARTS: Mapping[str, Sequence[str]] = {
    "each operation": ["--quick", "tests/gpu_graph/test_ops.py"],
    "each format": [
        "--quick",
        "tests/gpu/test_matmul.py",
        "tests/gpu/test_rowwise.py",
        "tests/gpu/test_block_formats.py",
    ],
    "each layer": ["--quick", "tests/parity/test_parity.py::test_shapes"],
    "calls": ["tests/gpu/test_greedy.py", "tests/gpu/test_states.py", "tests/gpu_graph/test_runs.py"],
}
"""Part of the cross-section → arguments of pytest. `gpu_cases` leaves the tests on GPUs alone.

Weights of types that have no format on GPUs are float32 there.
"""

COMPILE = """
import sys
from tests.gpu.modules import covering, modules
from volumetric.devices.gpu import GpuDevice

context = GpuDevice().context
assert context.webgpu.name == "dawn"
refused = []
for module in covering(modules()):
    linked = module.link(context.webgpu.dialect)
    try:
        context.webgpu.create_module(context.device, linked.name, linked.text, checked=True)
    except Exception as error:
        refused.append(f"{module.device} {module.dispatch}: {context.webgpu.cause(str(error))}")
sys.exit("\\n".join(refused) or None)
"""


def succeeds(*arguments: str) -> None:
    """Run Python in a process of its own, with a driver that Dawn takes."""
    variables = environment_or_skip()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_the_tests_on_gpus_pass_on_dawn(part: str) -> None:
    succeeds("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.gpu.gpu_cases", *PARTS[part])


@pytest.mark.thorough
def test_dawn_compiles_every_kernel() -> None:
    succeeds("-c", COMPILE)
