"""Environments of one's own: the module that registers them stands beside the configuration, or where Python looks."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.cli import main
from volumetric.evolution import EvolutionConfig, Population
from volumetric.evolution.problems import Gym

CHASE = """
import gymnasium, numpy as np

class Chase(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.reward, False, False, {}

gymnasium.register(id="NAME-v0", entry_point=Chase, max_episode_steps=5)
"""
NUMBERS = itertools.count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in a directory of its own, which is forgotten again afterwards."""
    name = f"Chase{next(NUMBERS)}"
    (tmp_path / "at").mkdir()
    (tmp_path / "at" / f"{name}.py").write_text(CHASE.replace("NAME", name))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def job(folder: Path, text: str) -> str:
    (folder / "at" / "job.toml").write_text(f"population = 6\ngenerations = 1\n{text}")
    return str(folder / "at" / "job.toml")


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_names_one_beside_it(module, tmp_path, monkeypatch, capsys, workers):
    monkeypatch.chdir(tmp_path)
    further = f"workers = {workers}\n" if workers else ""
    text = f'{further}[problem]\nkind = "gym"\nid = "{module}:{module}-v0"\narguments = {{ reward = 2.0 }}\n'
    code = main(["evolve", job(tmp_path, text), "--json"])
    out, err = capsys.readouterr()
    assert (code, err and json.loads(out)["fitness"]) == (0, 10.0)


def test_python_names_one_beside_it(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "at")
    problem = Gym(id=f"{module}:{module}-v0", max_steps=3)
    assert (problem.widths, problem.steps) == ((2, 1), 3)
    run = Population(problem.configure(EvolutionConfig(population=4)), seed=1)
    assert problem.score_all(run.ask()).tolist() == [3.0] * 4


@pytest.mark.parametrize(
    ("id", "message", "hint"),
    [
        ("nowhere:Chase-v0", "no module named 'nowhere'", "nowhere.py"),
        ("{module}:Flee-v0", "Flee", 'must call gymnasium.register(id="Flee-v0"'),
        ("Flee-v0", "Flee", "module:Name-v0"),
    ],
)
def test_what_is_missing_is_named(module, tmp_path, monkeypatch, capsys, id, message, hint):
    monkeypatch.chdir(tmp_path / "at")
    name = id.format(module=module)
    with pytest.raises((SpecError, UnsupportedError), match=message) as refused:
        Gym(id=name)
    assert hint in str(refused.value.hint)
    code = main(["evolve", job(tmp_path, f'[problem]\nkind = "gym"\nid = "{name}"\n')])
    err = capsys.readouterr().err
    assert (code, message in err, hint in err, "defect" in err) == (1, True, True, False)
