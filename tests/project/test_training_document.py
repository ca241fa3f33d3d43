"""docs/training.md tells the truth: its list of keys are the defaults, its examples run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.cli import main
from volumetric.dtypes import DTYPES
from volumetric.loaders import save_native
from volumetric.train.settings import RunSettings, settings_from

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
EXAMPLE, KEYS, NAMED = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
USE, TRAIN, HALVES, HEADS, OWN, OWN_GRAPH, SIGNS, FOLD = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_list_of_keys_shows_the_defaults() -> None:
    assert settings_from(tomllib.loads(KEYS)) == RunSettings(loss_given=True, clocked_given=True)


def test_the_list_of_keys_is_complete() -> None:
    from volumetric.base import config_tables
    from volumetric.train.settings import (
        ClockedSettings,
        DataSettings,
        HistorySettings,
        NetworkSettings,
        ObserveSettings,
    )
    from volumetric.train.training_config import TrainConfig

    for make in (TrainConfig, ClockedSettings, DataSettings, HistorySettings, NetworkSettings, ObserveSettings):
        for name in config_tables.argument_types(make):
            assert re.search(rf"^(# )?{name} = ", KEYS, re.MULTILINE), name


def test_keys_that_are_commented_out_are_right() -> None:
    hidden, section = [], ""
    for line in KEYS.splitlines():
        section = line[1:].partition("]")[0] if line.startswith("[") else section
        if re.match(r"# \w+ = ", line):
            hidden.append((section, line.removeprefix("# ")))
    assert len(hidden) == 9
    for section, line in hidden:
        found = settings_from({section: tomllib.loads(line)})
        assert getattr(found, section) != getattr(RunSettings(), section), line


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test's own, to which runs write."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.thorough
def test_the_example_learns_its_classes_and_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spirals.toml").write_text(EXAMPLE, encoding="utf-8")
    assert main(["train", str(tmp_path / "spirals.toml"), "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["accuracy"] > 0.95
    names: dict[str, object] = {}
    exec(compile(USE, "docs/training.md", "exec"), names)
    assert set(names["names"]) <= {"arm 0", "arm 1", "arm 2"}  # pyright: ignore[reportArgumentType]


def test_the_example_is_the_file_beside_the_documents() -> None:
    shipped = (ROOT / "examples" / "spirals.toml").read_text(encoding="utf-8")
    assert tomllib.loads(shipped) == tomllib.loads(EXAMPLE)
    assert "volumetric train examples/spirals.toml" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs() -> None:
    code = TRAIN
    names: dict[str, object] = {}
    exec(compile(code.replace("epochs=30", "epochs=2"), "docs/training.md", "exec"), names)
    assert {str(store.scheme) for store in names["result"].params.values()} == {"int8:g32", "float32"}  # pyright: ignore[reportAttributeAccessIssue]


def test_the_example_of_halves_learns(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile(HALVES, "docs/training.md", "exec"), names)
    first, *_, last = names["result"].history["loss"]
    assert last < first
    assert str(last) in capsys.readouterr().out


def test_the_examples_of_several_outputs_learn_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile(HEADS, "docs/training.md", "exec"), names)
    first, *_, last = names["result"].history
    assert all(last.losses[name] < first.losses[name] for name in ("output", "value"))
    save_native(tmp_path / "heads", names["network"], names["initialise"](names["network"]))
    y = names["targets"]
    np.savez(tmp_path / "heads.npz", inputs=names["x"], targets=y["output"], **{"targets.value": y["value"]})
    (tmp_path / "named.toml").write_text(NAMED)
    assert main(["train", str(tmp_path / "named.toml"), "--device", "reference", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["losses"].keys() == {"output", "value"}


def test_the_loss_of_one_s_own_learns_a_decile() -> None:
    names: dict[str, Any] = {}
    exec(compile(OWN, "docs/training.md", "exec"), names)
    assert names["config"].loss.terms(np.zeros((1, 1)), np.ones((1, 1))).total == 0.9


def test_the_table_has_every_numeric_type_and_all_reach_their_goals() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| `[\w:]+` \| ([\d.]+) % \|", TEXT, re.MULTILINE))
    assert set(rows) == {dtype.name for dtype in DTYPES}
    goals = {"float32": 97.0, "int8": 96.5, "int4": 95.0, "ternary": 93.0, "binary": 90.0}
    assert all(float(rows[name]) >= goal for name, goal in goals.items())


def test_the_example_of_folding_leaves_no_batch_norm() -> None:
    names: dict[str, Any] = {}
    exec(compile(FOLD, "docs/training.md", "exec"), names)
    kinds = {spec.kind for spec in names["folded"].layers.values()}
    assert "batch_norm2d" not in kinds
    x = np.ones((2, 1, 8, 8), np.float32)
    executable = names["executable"]
    assert executable.forward(executable.new_state(), x, last_only=False).shape == (2, 10)


def test_the_example_of_signs_learns_by_targets() -> None:
    names: dict[str, Any] = {}
    exec(compile(SIGNS, "docs/training.md", "exec"), names)
    assert names["result"].history[-1].loss < names["result"].history[0].loss


def test_the_table_of_targets_is_what_the_text_says() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .*? ([\d.]+) % \| [\d. …]+ \|$", TEXT, re.MULTILINE)
    last = {(hidden, mode): float(score) for hidden, mode, score in rows}
    plain = last["128-128 tanh", "backprop"]
    assert all(score > plain - 3 for (hidden, _), score in last.items() if hidden == "128-128 tanh")
    assert last["2 × 128 sign", "difference, learned inverses"] >= 95
    for n in (1, 2, 3, 4):
        assert last[f"{n} × 128 sign", "difference, learned inverses"] > last[f"{n} × 128 sign", "backprop"] + 5
