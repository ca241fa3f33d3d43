"""The package of docs/extending.md, built as it stands there and installed beside ours, adds what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project.pages import ROOT, documents_blocks

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def wheel_of(home: Path) -> Path:
    """A wheel of the package in a folder: what a build backend makes of its pyproject.toml, without one."""
    project = tomllib.loads((home / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = project["name"].replace("-", "_")
    info, wheel = f"{name}-{project['version']}.dist-info", home / f"{name}-{project['version']}-py3-none-any.whl"
    points = project["entry-points"].items()
    groups = (f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in of.items()) for group, of in points)
    with zipfile.ZipFile(wheel, "w") as file:
        for path in sorted(home.glob(f"{name}/*.py")):
            file.write(path, path.relative_to(home).as_posix())
        about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        file.writestr(f"{info}/METADATA", about)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/entry_points.txt", "\n".join(groups))
        file.writestr(f"{info}/RECORD", "")
    return wheel


def written(home: Path) -> Path:
    """The files of the page, in a folder."""
    for language, text in documents_blocks("docs/extending.md"):
        assert language == "file", text
        path = home / text.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return home


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs Python in an empty folder with the package installed."""
    wheel, target, work = wheel_of(written(tmp_path)), tmp_path / "installed", tmp_path / "work"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True)
    work.mkdir()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(target), str(ROOT)))}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=work, env=variables, capture_output=True, text=True, check=False)

    return run


@pytest.mark.thorough
def test_a_package_adds_layers_losses_formats_problems_and_verbs(run: Run) -> None:
    done = run("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["at first False", "reference cpu gpu agree", "learned", "q5_s"]
    done = run("-m", "volumetric", "count", "network.json")
    assert (done.returncode, done.stdout) == (0, "dense 2\nsquash 1\n"), done.stderr
    listed = " ".join(run("-m", "volumetric", "--help").stdout.replace("│", " ").split())
    assert "count Of volumetric-squash: count --help says what it does." in listed
    assert "Its network.json." in run("-m", "volumetric", "count", "--help").stdout
    done = run("-m", "volumetric", "evolve", "half.toml", "--set", "generations=2")
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_a_package_that_fails_is_left_out_with_a_warning(tmp_path: Path) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[volumetric.plugins]\nparts = no_such_module\n")
    text = "from volumetric.layers import LAYERS; print('dense' in LAYERS, 'squash' in LAYERS)"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    done = subprocess.run([sys.executable, "-c", text], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
    assert "the plug-in parts (no_such_module) of broken 1.0 cannot be used: ModuleNotFoundError" in done.stderr


SCRIPT = """
HALF = 'problem = {kind = "half", width = 3}\\npopulation = 10\\n[genome]\\ninputs = 3\\noutputs = 1\\n'
from pathlib import Path
import numpy as np
from volumetric import plugins
from volumetric.builders import chain
from volumetric.dtypes import Scheme
from volumetric.layers import LAYERS, Dense
from volumetric.network import Network, initialise
from volumetric.runtime import lower
from volumetric.runtime.open import open_device
from volumetric.train import ArrayData, TrainConfig, train

print("at first", plugins.searched())
Squash = LAYERS["squash"]
dense = Dense(in_features=3, out_features=4)
network = chain([dense, Squash(strength=0.5), Dense(in_features=4, out_features=1)], (3,))
Path("network.json").write_text(network.to_json())
assert Network.from_json(Path("network.json").read_text()) == network
params = initialise(network, 1)
x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
w = {key: store.values() for key, store in params.items()}
h = x @ w["0.0.0.0/weight"].T + w["0.0.0.0/bias"]
expected = h / (1 + 0.5 * np.abs(h)) @ w["2.0.0.0/weight"].T + w["2.0.0.0/bias"]
losses = []
for name in ("reference", "cpu", "gpu"):
    executable = open_device(name).compile(lower(network), params)
    found = executable.forward(executable.new_state(), x, last_only=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    data = ArrayData(inputs=x, targets=x[:, :1], batch_size=6)
    result = train(network, params, data, TrainConfig(epochs=3, loss="log_cosh", optimiser="sgd"), device=name)
    losses.append([event.loss for event in result.history])
print("reference cpu gpu agree")
np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)
assert losses[0][2] < losses[0][0]
print("learned")
wide = chain([Dense(in_features=64, out_features=8)], (64,))
stored = initialise(wide)
stored["0.0.0.0/weight"].morph(Scheme.parse("q5_s"))
print(stored["0.0.0.0/weight"].scheme)
x = np.ones((1, 64), np.float32)
expected = stored["0.0.0.0/weight"].values().sum(1) + stored["0.0.0.0/bias"].values()
for name in ("cpu", "gpu"):
    executable = open_device(name).compile(lower(wide), stored)
    np.testing.assert_allclose(executable.forward(executable.new_state(), x)[0], expected, rtol=1e-4, atol=1e-5)
Path("half.toml").write_text(HALF)
"""
