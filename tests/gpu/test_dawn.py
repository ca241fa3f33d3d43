"""A cross-section of the tests on GPUs passes on Dawn, and Dawn compiles every kernel.

The whole suites run on Dawn with ``VOLUMETRIC_WEBGPU=dawn``, where the driver is one that Dawn takes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from tests.gpu.dawn_driver import REQUIRED, ROOT, environment_or_skip
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES, VARIABLE

PARTS: Mapping[str, Sequence[str]] = {
    "each operation and format": [
        "--quick",
        "tests/gpu_graph/test_ops.py",
        "tests/gpu/test_matmul.py",
        "tests/gpu/test_rowwise.py",
        "tests/gpu/test_block_formats.py",
    ],
    "each layer": ["--quick", "tests/parity/test_parity.py::test_shapes"],
    "texts": ["--quick", "tests/gpu/test_pooled_texts.py", "tests/gpu/test_whole_pieces.py"],
    "calls": ["tests/gpu/test_greedy.py", "tests/gpu_graph/test_runs.py"],
}
LONG = ("each layer", "texts", "calls")
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
        context.webgpu.create_module(context.device, linked.name, linked.text)
    except Exception as error:
        refused.append(f"{module.device} {module.dispatch}: {context.webgpu.cause(str(error))}")
sys.exit("\\n".join(refused) or None)
"""

COMPILE_UNITS = """
import sys
from tests.gpu.modules import covering, matrix_modules
from volumetric.devices.gpu.webgpu.dawn import DAWN

[adapter] = DAWN.adapters("Null")
features = DAWN.features(adapter)
device = DAWN.open(adapter, features & {"matrix-units", "shader-f16", "subgroups", "immediates"})
wrong = "enable chromium_experimental_subgroup_matrix;\\nalias Left = subgroup_matrix_left<f16, 16, 16>;"
texts = {str(module.dispatch): module.link("tint").text for module in covering(matrix_modules())}
refused = {}
for name, text in {**texts, "wrong": wrong}.items():
    try:
        DAWN.create_module(device, name, text)
    except Exception as error:
        refused[name] = DAWN.cause(str(error))
assert "'f16' type used without" in refused.pop("wrong"), "it is compiled"
sys.exit("\\n".join(map(str, refused.items())) or None)
"""


GREEDY = """
from itertools import islice
import numpy as np
from tests.networks import tiny_llama
from volumetric.devices.gpu import GpuDevice
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids

device, network = GpuDevice(), tiny_llama()
options = RunOptions(context=120, compute="float32")
executable = device.compile(lower(network), initialise(network, 2), options)
state = executable.new_state()
executable.forward(state, np.arange(10, dtype=np.int32))
print(device.context.webgpu.name, *islice(greedy_ids(executable, state, 5), 60))
"""


INTERRUPTED = """
import threading
from itertools import islice
import numpy as np
from tests.networks import tiny_llama
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids

def encoding():
    return any(thread.name.startswith("gpu-encode") for thread in threading.enumerate())

def generated():
    state = executable.new_state()
    executable.forward(state, np.arange(5, dtype=np.int32))
    return list(islice(greedy_ids(executable, state, 5), 8))

device, network = GpuDevice(), tiny_llama(blocks=9)
executable = device.compile(lower(network), initialise(network, 21), RunOptions(context=40))
executor, interrupts = executable.recordings.executor, 0
expected, send = generated(), executor.send
assert encoding(), "a token is encoded on another thread"
reference = ReferenceDevice().compile(lower(network), initialise(network, 21), RunOptions(context=40))
state = reference.new_state()
reference.forward(state, np.arange(5, dtype=np.int32))
assert expected == list(islice(greedy_ids(reference, state, 5), 8))
for before in range(6):
    def interrupted(begun, left=[before]):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return send(begun)
    executor.send = interrupted
    try:
        generated()
    except KeyboardInterrupt:
        interrupts += 1
    executor.send = send
    assert generated() == expected
assert interrupts == 6
executable.close()
assert not encoding()
"""

MEASURED = """
from functools import partial
from volumetric.devices.gpu import implementation_choice
from volumetric.devices.gpu.adapters import ranked_adapters
from volumetric.devices.gpu.implementation_speed import measure_speed
from volumetric.devices.gpu.open_gpu import OpenGpu

implementation_choice.measure_speed = partial(measure_speed, width=64, rows=16, seconds=0.0)
adapter = ranked_adapters()[0]
assert implementation_choice.measure_implementation(adapter, "dawn").token > 0
OpenGpu(adapter, "dawn")  # the adapter is not consumed
"""


def succeeds(*arguments: str, implementation: str = "dawn") -> str:
    """Run Python in a process of its own, with a driver that Dawn takes; returns what it prints."""
    variables = {**environment_or_skip(), VARIABLE: implementation}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_the_tests_on_gpus_pass_on_dawn(part: str) -> None:
    if part in LONG and not os.environ.get(REQUIRED):
        pytest.skip(f"takes minutes: {REQUIRED}=1 runs it")
    succeeds("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.gpu.gpu_cases", *PARTS[part])


@pytest.mark.thorough
def test_dawn_compiles_every_kernel() -> None:
    succeeds("-c", COMPILE)


@pytest.mark.thorough
def test_dawn_compiles_every_product_on_matrix_units() -> None:
    """Dawn's backend without a GPU has the extension, which software drivers lack; it compiles and runs nothing."""
    if importlib.util.find_spec("wgpudawn") is None:
        pytest.skip("wgpudawn is not installed")
    done = subprocess.run([sys.executable, "-c", COMPILE_UNITS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.mark.thorough
def test_greedy_tokens_are_the_same_with_both() -> None:
    """Sixty of them; the next test compares a few on Dawn with the reference."""
    if not os.environ.get(REQUIRED):
        pytest.skip(f"compiles for half a minute: {REQUIRED}=1 runs it")
    names, tokens = zip(*(succeeds("-c", GREEDY, implementation=name).split(maxsplit=1) for name in NAMES), strict=True)
    assert names == NAMES
    assert tokens[0] == tokens[1]
    assert len(set(tokens[0].split())) > 5, "they say something"


@pytest.mark.thorough
def test_interrupts_leave_the_commands_encoded_ahead_in_order() -> None:
    """The tokens before and after are those of the reference."""
    succeeds("-c", INTERRUPTED)


@pytest.mark.thorough
def test_a_gpu_that_was_just_measured_opens() -> None:
    """An adapter of Dawn opens one device."""
    succeeds("-c", MEASURED)
