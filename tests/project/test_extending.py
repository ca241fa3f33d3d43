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
        for path in sorted(home.glob(f"{name}/*.*")):
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
        assert language in ("file", "sh"), text
        path = home / text.splitlines()[0].lstrip("#/ ")
        if language == "file" and not path.exists():  # the module of the first section has many blocks, and is not used
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
def test_a_package_adds_all_that_the_page_says(run: Run) -> None:
    done = run("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "at first False",
        "listed",
        "volumetric_squash volumetric_squash.layer",
        "reference cpu gpu agree",
        "learned",
        "kernels of its own",
        "q5_s float6_e3m2:g32",
        "saved",
    ]
    done = run("-m", "volumetric", "count", "network.json")
    assert (done.returncode, done.stdout) == (0, "dense 2\nswiglu 1\nsquash 1\n"), done.stderr
    listed = " ".join(run("-m", "volumetric", "--help").stdout.replace("│", " ").split())
    assert "count From volumetric-squash: see count --help." in listed
    assert "Its network.json." in run("-m", "volumetric", "count", "--help").stdout
    done = run("-m", "volumetric", "evolve", "half.toml", "--set", "generations=2")
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_kernels_that_are_kept_are_those_of_the_package_as_it_is(run: Run, tmp_path: Path) -> None:
    """Compiled code outlives a process; neither an edited formula nor an edited kernel meets that of before."""
    assert run("-c", KEPT).stdout.split() == ["True", "True"], run("-c", KEPT).stderr
    home = tmp_path / "installed" / "volumetric_squash"
    for name, before, after in (
        ("formulas", "UnaryFormula(X *", "UnaryFormula(2 * X *"),
        ("cpu", "return x /", "return x * splat(np.float32(2.0)) /"),
    ):
        text = (home / f"{name}.py").read_text(encoding="utf-8")
        assert before in text
        (home / f"{name}.py").write_text(text.replace(before, after), encoding="utf-8")
    assert run("-c", KEPT).stdout.split() == ["True", "False"]  # the kernel alone is another, not what it should give


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
import sys
from pathlib import Path
import numpy as np
from volumetric.base import plugins
from volumetric.builders import chain
from volumetric.dtypes import Scheme
from volumetric.graph import GraphBuilder
from volumetric.layers import LAYERS, Dense, SwiGLU
from volumetric.loaders.native_checkpoint import read_native, save_native
from volumetric.network import Network, initialise
from volumetric.run import lower
from volumetric.devices.named_devices import open_device
from volumetric.train import LOSSES, OPTIMISERS, ArrayData, TrainConfig, train

print("at first", plugins.were_plugins_searched())
assert "squash" in LAYERS.names()
assert {"charbonnier", "log_cosh"} <= set(LOSSES.names()) and "lion" in OPTIMISERS.names()
print("listed" if not any(name.startswith("volumetric_squash") for name in sys.modules) else "imported")
Squash = LAYERS["squash"]
print(*sorted(name for name in sys.modules if name.startswith("volumetric_squash")))
dense = Dense(in_features=3, out_features=4, activation="mish")
gated = SwiGLU(in_features=4, hidden_features=5, activation="mish")
network = chain([dense, gated, Squash(strength=0.5), Dense(in_features=4, out_features=1)], (3,))
Path("network.json").write_text(network.to_json())
assert Network.from_json(Path("network.json").read_text()) == network
params = initialise(network, 1)
x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
w = {key: store.values().astype(np.float64) for key, store in params.items()}
mish = lambda x: x * np.tanh(np.logaddexp(x, 0))
h = mish(x @ w["0.0.0.0/weight"].T + w["0.0.0.0/bias"])
h = (mish(h @ w["1.0.0.0/gate.weight"].T) * (h @ w["1.0.0.0/up.weight"].T)) @ w["1.0.0.0/down.weight"].T
expected = h / (1 + 0.5 * np.abs(h)) @ w["3.0.0.0/weight"].T + w["3.0.0.0/bias"]
losses = []
for name in ("reference", "cpu", "gpu"):
    executable = open_device(name).compile(lower(network), params)
    found = executable.forward(executable.new_state(), x, last_only=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    data = ArrayData(inputs=x, targets=x[:, :1], batch_size=6)
    for loss, optimiser in (("log_cosh", "sgd"), ({"kind": "charbonnier", "width": 0.2}, {"kind": "lion", "lr": 0.01})):
        config = TrainConfig(epochs=3, loss=loss, optimiser=optimiser)
        losses.append([event.loss for event in train(network, params, data, config, device=name).history])
print("reference cpu gpu agree")
np.testing.assert_allclose(losses[2:], losses[:2] * 2, rtol=1e-5)
assert losses[0][2] < losses[0][0] and losses[1][2] < losses[1][0]
print("learned")
work = GraphBuilder()
graph = work.finish(work.emit("squash", (work.input("x", (5, 37)),), strength=0.25))
y = np.random.default_rng(1).standard_normal((5, 37)).astype(np.float32)
for name, label in (("cpu", "volumetric_squash.cpu:squash"), ("gpu", "volumetric_squash:squash")):
    graphs = open_device(name).graphs()
    program = graphs.compile(graph, graphs.store())
    np.testing.assert_allclose(program.run([y])[0], y / (1 + 0.25 * np.abs(y)), rtol=1e-6)
    times = program.step_times([y], repeats=1) if name == "cpu" else program.step_times(repeats=1)
    assert label in [time.label.strip() for time in times], times
print("kernels of its own")
wide = chain([Dense(in_features=64, out_features=8), Dense(in_features=8, out_features=8)], (64,))
stored = initialise(wide)
stored["0.0.0.0/weight"].morph(Scheme.parse("q5_s"))
stored["1.0.0.0/weight"].morph(Scheme.parse("float6_e3m2"))
print(stored["0.0.0.0/weight"].scheme, stored["1.0.0.0/weight"].scheme)
x = np.ones((1, 64), np.float32)
expected = stored["0.0.0.0/weight"].values().sum(1) + stored["0.0.0.0/bias"].values()
expected = stored["1.0.0.0/weight"].values() @ expected + stored["1.0.0.0/bias"].values()
for name in ("cpu", "gpu"):
    executable = open_device(name).compile(lower(wide), stored)
    np.testing.assert_allclose(executable.forward(executable.new_state(), x)[0], expected, rtol=1e-4, atol=1e-5)
save_native(Path("wide"), wide, stored)
_, again, _ = read_native(Path("wide"))
for key, store in stored.items():
    assert again[key].scheme == store.scheme
    np.testing.assert_array_equal(again[key].values(), store.values())
print("saved")
Path("half.toml").write_text(HALF)
"""

KEPT = """
import numpy as np
from volumetric.builders import chain
from volumetric.graph import GraphBuilder
from volumetric.layers import LAYERS, Dense
from volumetric.network import initialise
from volumetric.run import lower
from volumetric.devices.named_devices import open_device

network = chain([Dense(in_features=3, out_features=4, activation="mish")], (3,))
params = initialise(network, 1)
x = np.ones((2, 3), np.float32)
want, got = (open_device(name).compile(lower(network), params) for name in ("reference", "cpu"))
print(np.allclose(*(of.forward(of.new_state(), x) for of in (want, got)), rtol=1e-6))
work = GraphBuilder()
graph = work.finish(work.emit("squash", (work.input("x", (2, 3)),), strength=0.25))
graphs = open_device("cpu").graphs()
[y] = graphs.compile(graph, graphs.store()).run([x])
print(np.allclose(y, x / (1 + 0.25 * np.abs(x))))
"""
