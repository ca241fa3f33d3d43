"""The nine parts of docs/extending.md, as they stand there, in a script, a notebook and another process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project.pages import ROOT, documents_blocks

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PARTS = (
    "layer",
    "activation",
    "loss",
    "optimiser",
    "initialiser",
    "register_dtype",
    "problem",
    "memory_task",
    "reporter",
)
MOST = 15
"""Lines of a part."""


def blocks_of(name: str) -> list[str]:
    """The blocks of the page that are parts of a file."""
    files = [text for language, text in documents_blocks("docs/extending.md") if language == "file"]
    return [text for text in files if text.splitlines()[0] == f"# {name}"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs Python in a folder with the files of the section."""
    for name in ("my_parts.py", "my_env.py", "chase.toml", "use_parts.py", "open_parts.py", "parts.toml"):
        (tmp_path / name).write_text("\n\n".join(blocks_of(name)), encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "VOLUMETRIC_DEVICE": "reference"}

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=variables, input=stdin, capture_output=True, text=True, check=False
        )

    return run


def test_each_part_is_short() -> None:
    blocks = blocks_of("my_parts.py")
    for part in PARTS:
        [block] = [text for text in blocks if f"volumetric.{part}(" in text]
        assert len(block.splitlines()) - 1 <= MOST + 2 * (block.count("\n@") - 1), part


def test_a_script_uses_them_and_another_process_opens_the_model(run: Run, tmp_path: Path) -> None:
    done = run("use_parts.py")
    assert (done.returncode, done.stdout) == (0, "done: epochs\n"), done.stderr
    done = run("-c", OPEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "(1, 1)"
    assert "error: snake/network.json: network uses the plug-in my_parts 1.0, which is not imported" in done.stderr
    assert 'hint: if you trust it: --plugin my_parts on the command line, load(…, plugins=["my_parts"])' in done.stderr
    assert "error: --plugin: nope: no module named 'nope'" in done.stderr
    assert "defect" not in done.stderr
    assert "saved with my_parts 1.0, and my_parts is 1.1 now" in done.stderr
    assert "layers:          dense 2, snake 1" in done.stdout


def test_a_notebook_may_run_its_cells_again(run: Run) -> None:
    """Parts in ``__main__``: another definition counts at once, and saving says that no other process knows them."""
    done = run("-", stdin=NOTEBOOK.format("\n\n".join(blocks_of("my_parts.py"))))
    assert (done.returncode, done.stdout) == (0, "[[0.5]] [[0.75]] [[3.]]\nOneOfAKind\n"), done.stderr
    assert "activation bent, layer snake: defined in this script or notebook" in done.stderr
    done = run("-c", "import volumetric; volumetric.load('cells', 'reference')")
    assert "uses what a script or notebook defined, and what is not defined here: activation bent" in done.stderr


@pytest.mark.thorough
def test_devices_agree_with_each_other_and_with_differences(run: Run) -> None:
    done = run("-c", AGREE)
    assert (done.returncode, done.stdout) == (0, "reference\ncpu\ngpu\nagain\n"), done.stderr


@pytest.mark.thorough
def test_problems_tasks_and_environments_are_known_to_commands(run: Run) -> None:
    pytest.importorskip("gymnasium")
    done = run("-m", "volumetric", "evolve", "chase.toml", "--set", "workers=1")
    assert done.returncode == 0, done.stderr
    done = run("-m", "volumetric", "evolve", "chase.toml", *PLUGGED)
    assert done.returncode == 0, done.stderr
    done = run("-m", "volumetric", "tasks", "run", "first_bit", "--plugin", "my_parts.py", *BRIEF)
    assert done.returncode == 0, done.stderr
    assert "| first_bit | M | 16 |" in done.stdout
    done = run("-m", "volumetric", "train", "parts.toml", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "trained: epochs" in done.stdout
    done = run("-c", HALF)
    assert done.returncode == 0, done.stderr


PLUGGED = (
    *("--set", 'plugins=["my_env"]', "--set", "workers=1", "--set", "output=other"),
    *("--set", 'problem={kind="gym", id="Chase-v0", trials=2}'),
)
BRIEF = ("--steps", "2", "--model", "M", "--seeds", "2", "--workers", "2", "--lengths", "16", "--device", "reference")

OPEN = """
import sys
from pathlib import Path

import volumetric
from volumetric.cli import main
from volumetric.errors import PluginError

try:
    volumetric.load("snake", "reference")
except PluginError:
    assert "my_parts" not in sys.modules
assert main(["inspect", "snake"]) == 1 and "my_parts" not in sys.modules
assert main(["inspect", "snake", "--plugin", "nope"]) == 1
assert main(["inspect", "snake", "--plugin", "my_parts"]) == 0
import my_parts
my_parts.__version__ = "1.1"
exec(Path("open_parts.py").read_text())
"""

NOTEBOOK = """
{}

import warnings
from volumetric.builders import chain
from volumetric.layers import Dense
from volumetric.loaders.native_checkpoint import save_native
from volumetric.layers.layer_spec import LAYERS


def predicted():
    network = chain([Dense(in_features=1, out_features=1, activation="bent"), Snake(features=1)], (1,))
    ones = volumetric.initialise(network, init={{"*": "ones"}})
    return network, ones


def at_two(network, params):
    executable = volumetric.open_device("reference").compile(volumetric.lower(network), params)
    return executable.forward(executable.new_state(), np.full((1, 1), 1.0, np.float32))


@volumetric.layer("snake")
class Snake(LayerSpec):
    features: int

    def params(self):
        return (ParamSpec(name="a", shape=(self.features,), init="near_one"),)

    def emit(self, scope, x):
        return x * self.scale

    scale = 0.75


first = at_two(*predicted())


@volumetric.activation("bent")
def bent(x):
    return x / 2


second = at_two(*predicted())


@volumetric.layer("snake")
class Snake(LayerSpec):
    features: int

    def params(self):
        return (ParamSpec(name="a", shape=(self.features,), init="near_one"),)

    def emit(self, scope, x):
        return 3 * x * scope.params(self)["a"]


third = at_two(*predicted())
print(first, second, third)
save_native("cells", *predicted())
print("OneOfAKind" if LAYERS["snake"] is Snake else "two kinds")
"""

AGREE = """
import numpy as np

import my_parts
import volumetric
from volumetric.builders import chain
from volumetric.layers import Dense
from volumetric.train import SGD, TrainConfig, train

names = {"in_features": 3, "out_features": 4, "activation": "bent"}
network = chain([Dense(**names), my_parts.Snake(features=4), Dense(in_features=4, out_features=2)], (3,))
params = volumetric.initialise(network, 1)
rng = np.random.default_rng(0)
x, y = (rng.standard_normal((8, n)).astype(np.float32) for n in (3, 2))
start = {key: store.values().astype(np.float64) for key, store in params.items()}


def loss(w):
    h = x @ w["0.0.0.0/weight"].T + w["0.0.0.0/bias"]
    h = h / (1 + abs(h))
    a = w["1.0.0.0/a"]
    h = h + np.sin(a * h) ** 2 / a
    gap = y - (h @ w["2.0.0.0/weight"].T + w["2.0.0.0/bias"])
    return np.maximum(0.9 * gap, -0.1 * gap).mean()


def difference(key, i):
    sides = []
    for step in (1e-6, -1e-6):
        w = {name: values.copy() for name, values in start.items()}
        w[key].flat[i] += step
        sides.append(loss(w))
    return (sides[0] - sides[1]) / 2e-6


want = {key: np.array([difference(key, i) for i in range(w.size)]).reshape(w.shape) for key, w in start.items()}
config = TrainConfig(epochs=1, loss="pinball", optimiser=SGD(lr=1.0))
for device in ("reference", "cpu", "gpu"):
    result = train(network, params, (x, y), config, device=device)
    for key, store in result.params.items():
        np.testing.assert_allclose(start[key] - store.values(), want[key], atol=2e-5, err_msg=f"{device} {key}")
    print(device)


@volumetric.activation("bent")
def bent(x):
    return np.where(x > 0, x, np.exp(x) - 1)


my_parts.bent = bent
from volumetric.formula.unary_functions import ACTIVATIONS

def outputs():
    for device in ("reference", "cpu", "gpu"):
        executable = volumetric.open_device(device).compile(volumetric.lower(network), params)
        yield executable.forward(executable.new_state(), x, last_only=False)


first = list(outputs())
volumetric.activation("bent")(lambda x: 2 * x)
second = list(outputs())
for before, after in zip(first, second, strict=True):
    np.testing.assert_allclose(after, second[0], rtol=1e-5, atol=1e-6)
    assert abs(after - before).max() > 0.01
print("again")
"""

HALF = """
from pathlib import Path

from volumetric.cli import main

text = 'plugins = ["my_parts"]\\nproblem = {kind = "half", width = 3}\\nreporters = ["bell"]\\npopulation = 10\\n'
Path("half.toml").write_text(text + "generations = 2\\n[genome]\\ninputs = 3\\noutputs = 1\\n")
assert main(["evolve", "half.toml"]) == 0
"""
