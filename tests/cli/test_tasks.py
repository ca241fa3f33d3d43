"""The verb tasks: the list, tables of trials, their log, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from volumetric.base.errors import CheckpointError
from volumetric.cli import main
from volumetric.train.memory import TASKS
from volumetric.train.memory.trial import Trial, TrialBudget
from volumetric.train.memory.trials import read_log, run_trials

QUICK = ["--width", "8", "--steps", "3", "--batch", "4", "--judged", "70", "--quiet"]


def test_the_list_has_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "list", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["task"] for row in told] == list(TASKS)
    assert all(row["needs"] for row in told)
    assert main(["tasks", "list"]) == 0
    assert "| dyck2 |" in capsys.readouterr().out


def test_networks_are_shown_beside_what_has_no_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "trials.jsonl"
    command = ["tasks", "run", "majority", "--model", "L", "--seeds", "1", "--lengths", "40,70", "--log", str(log)]
    assert main([*command, *QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| task | model | length | weights | seeds | mean ± sd |"
    assert len(lines) == 2 + 4 * 2
    assert lines[2].startswith("| majority | L | 40 | ")
    assert "| majority | bag | 70 |  | 1 | 100.0 % ± 0.0 % |" in lines
    written = log.read_bytes()
    assert len(written.splitlines()) == 4
    log.write_bytes(written[:-10])  # as a crash leaves it
    assert main([*command, *QUICK, "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["length"] for row in rows[:2]] == ["40", "70"]
    again = log.read_bytes()
    kept = written.rstrip().rfind(b"\n") + 1
    assert again[:kept] == written[:kept]
    assert len(again.splitlines()) == 4


def test_values_are_judged_by_their_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "run", "sines", "--model", "C", "--seeds", "1", "--lengths", "64", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "| sines | prior | 64 |  | 1 | 1.000" in out
    assert "| sines | linear | 64 |  | 1 | 0." in out


@pytest.mark.thorough
def test_processes_give_what_one_gives(tmp_path: Path) -> None:
    trials = [Trial(task="copy", model="prior", seed=seed, lengths=(60,)) for seed in range(3)]
    log = tmp_path / "trials.jsonl"
    several = run_trials(trials, workers=2, device="reference", log=log)
    alone = run_trials(trials, device="reference")
    assert [of.scores for of in several] == [of.scores for of in alone]
    assert {of.trial.seed: of.scores for of in read_log(log)} == {of.trial.seed: of.scores for of in alone}
    begun: list[int] = []
    some = run_trials(trials, device="reference", tell=lambda of: begun.append(1), stop=lambda: bool(begun))
    assert [of.trial.seed for of in some] == [0]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["list", "copy"], 2, "does not accept names"),
        (["run", "cpoy"], 2, "unknown task 'cpoy'"),
        (["forget"], 2, "forget"),
        (["run", "copy", "--seeds", "0"], 2, "--seeds must be 1 or more"),
        (["run", "copy", "--lengths", "a"], 2, "--lengths must be numbers"),
        (["run", "copy", "--lengths", "3"], 1, "copy: length must be at least"),
        (["run", "copy", "--model", "LQ"], 1, "'LQ'"),
        (["run", "copy", "--steps", "0"], 1, "steps must be at least 1"),
        (["run", "copy", "--lr", "nan"], 1, "learning rate"),
        (["run", "copy", "--workers", "0"], 1, "workers must be at least 1"),
        (["run", "copy", "--log", "."], 1, "is not a log of trials"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], code: int, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", *arguments]) == code
    assert part in capsys.readouterr().err


def test_files_that_are_no_log_stay_as_they_are(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    trial = {
        **Trial(task="copy", model="L", lengths=(60,), budget=TrialBudget()).to_dict(),
        "scores": {60: float("inf")},
    }
    for text in (
        "a line\nand a half",
        "{}\n",
        json.dumps(trial).replace("Infinity", "1e999") + "\n",
        "[" * 100_000 + "\n",
    ):
        other.write_text(text)
        with pytest.raises(CheckpointError, match="line 1 is not an outcome"):
            read_log(other)
        assert other.read_text() == text
