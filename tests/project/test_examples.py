"""The files in examples/: each runs, a little."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from volumetric.cli import main

HOME = Path(__file__).parents[2] / "examples"
FILES = [path for path in sorted(HOME.glob("*.toml")) if "generations" in tomllib.loads(path.read_text())]
SMALL = {"spirals_grid": ["--set", "problem.options.epochs=1", "--set", "problem.make_options.samples=60"]}
SMALL["echo"] = ["--set", "population=3"]


def test_the_examples_that_documents_name_are_there() -> None:
    assert {"xor", "cartpole", "spirals_grid", "disc", "echo"} <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_runs_a_little(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--generations", "2", "--set", "population=6", *SMALL.get(path.stem, [])]
    assert main(["evolve", str(path), "--json", "--out", str(tmp_path / "run"), *small]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["generations"] in (1, 2)
    assert told["fitness"] is not None
    assert (tmp_path / "run" / "champion.json").is_file()


def test_a_fabric_learns_a_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["data.options.samples=8", "data.options.length=32", "data.validation=0.0", "train.epochs=1"]
    small = [part for change in small for part in ("--set", change)]
    command = ["train", str(HOME / "fabric.toml"), "--device", "reference", "--out", str(tmp_path / "run"), *small]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["updates"], told["parameters"] > 20_000) == (1, True)


def test_a_run_is_resumed_with_the_fitness_beside_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "here").mkdir()
    for name in ("disc.py", "disc.toml"):
        shutil.copy(HOME / name, tmp_path / "here" / name)
    config, home = str(tmp_path / "here" / "disc.toml"), str(tmp_path / "elsewhere")
    assert main(["evolve", config, "--out", home, "--generations", "2", "--set", "population=6", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["evolve", "--resume", home, "--generations", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["generations"] == 3
