"""Runs of evolution that go on: what is obeyed, what is refused, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import CheckpointError
from volumetric.cli import evolve_job, main
from volumetric.cli.run_lock import only_one
from volumetric.evolution import EvaluationError, Genome, Population
from volumetric.evolution.evaluate import Cohort

PARITY = 'seed = 3\npopulation = 20\nproblem = { kind = "parity", bits = 4 }\n'


@pytest.fixture
def begun(tmp_path: Path, capsys) -> Path:
    """The directory of a run of three generations."""
    (tmp_path / "job.toml").write_text(PARITY)
    assert main(["evolve", str(tmp_path / "job.toml"), "--generations", "3"]) == 0
    capsys.readouterr()
    return tmp_path / "job"


def generations(home: Path) -> list[int]:
    lines = [json.loads(line) for line in (home / "history.jsonl").read_text().splitlines()]
    return [line["generation"] for line in lines if line["event"].lower() == "evaluated"]


def resume(home: Path, *arguments: str) -> int:
    return main(["evolve", "--resume", str(home), "--json", *arguments])


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ("population=30", "population is 30, but the run began with 20"),
        ("seed=4", "seed is 4, but the run began with 3"),
        ("problem.bits=3", "problem.bits is 3, but the run began with 4"),
        ("genome.recurrent=true", "genome.recurrent is True"),
        ("genome.inputs=3", "genome.inputs is 3"),
        ("algorithm=grid", "algorithm"),
        ("fitness_criterion=min", "fitness_criterion"),
    ],
)
def test_what_would_be_another_run_is_refused(begun: Path, capsys, change: str, wrong: str) -> None:
    before = {path.name: path.read_bytes() for path in begun.iterdir() if path.is_file()}
    assert resume(begun, "--set", change) == 1
    assert wrong in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in begun.iterdir() if path.is_file()} == before


def test_what_can_change_is_obeyed_and_kept(begun: Path, capsys) -> None:
    changes = ("species.target=3", "mutation.add_node=0.9", "fitness_threshold=1000.0", "checkpoint_every=2")
    assert resume(begun, "--generations", "6", *(part for change in changes for part in ("--set", change))) == 0
    config = Population.load(begun / "checkpoint.npz").config
    assert (config.species.target, config.mutation.add_node, config.fitness_threshold) == (3, 0.9, 1000.0)
    assert generations(begun) == list(range(6))
    assert resume(begun, "--generations", "7") == 0
    assert Population.load(begun / "checkpoint.npz").config == config
    assert resume(begun, "--set", "fitness_threshold=1.0", "--set", "generations=50") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["reason"] == "solved"


def test_a_changed_rate_changes_what_comes(begun: Path) -> None:
    assert resume(begun, "--generations", "8", "--set", "mutation.add_node=0.9") == 0
    hidden = [genome.hidden for genome in Population.load(begun / "checkpoint.npz").genomes]
    assert np.mean(hidden) > 1  # with the rate that it began with every twentieth child gains a node


def test_the_copy_of_the_configuration_counts_and_edits_are_told(begun: Path, capsys) -> None:
    source = begun.parent / "job.toml"
    source.write_text(PARITY + "generations = 4\n")
    assert resume(begun, "--generations", "4") == 0
    assert f"{source} has changed since the run began" in capsys.readouterr().err
    copy = begun / "config.toml"
    copy.write_text(PARITY + "[species]\ntarget = 2\n")
    assert resume(begun, "--generations", "5") == 0
    assert Population.load(begun / "checkpoint.npz").config.species.target == 2
    copy.write_text(PARITY.replace("bits = 4", "bits = 5"))
    assert resume(begun, "--generations", "6") == 1
    assert "problem.bits is 5, but the run began with 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--resume", "RUN", "--out", "other"],
        ["--resume", "RUN", "--format", "svg"],
        ["plot", "RUN", "--set", "seed=1"],
        ["plot", "RUN", "--workers", "2"],
    ],
)
def test_what_would_be_ignored_is_refused(begun: Path, arguments: list[str]) -> None:
    assert main(["evolve", *(str(begun) if part == "RUN" else part for part in arguments)]) == 2


def test_a_damaged_origin_is_told(begun: Path, capsys) -> None:
    (begun / "origin.json").write_text('{"home": 3')
    assert resume(begun) == 1
    assert "origin.json is damaged" in capsys.readouterr().err


def started(tmp_path: Path, text: str) -> subprocess.Popen[bytes]:
    """A run in a process of its own, once its history has begun."""
    (tmp_path / "job.toml").write_text(text)
    command = [sys.executable, "-m", "volumetric", "evolve", str(tmp_path / "job.toml")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    history = tmp_path / "job" / "history.jsonl"
    for _ in range(600):
        if (history.exists() and history.stat().st_size) or process.poll() is not None:
            break
        time.sleep(0.1)
    return process


@pytest.mark.thorough
def test_a_run_has_one_process_and_a_kill_lets_it_go_without_a_trace(tmp_path: Path, capsys) -> None:
    process, home = started(tmp_path, PARITY + "generations = 100000\ncheckpoint_every = 90000\n"), tmp_path / "job"
    try:
        assert resume(home) == 1
        told = capsys.readouterr().err
        assert f"is still running, in process {process.pid}" in told
        assert "--out" in told
        assert main(["evolve", str(tmp_path / "job.toml")]) == 1
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert not (home / "checkpoint.npz").exists()
    assert generations(home)
    assert resume(home, "--generations", "4") == 0
    assert generations(home) == [0, 1, 2, 3]
    assert len((home / "history.csv").read_text().splitlines()) == 5


def test_a_lock_is_for_others_and_ends_with_its_block(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from volumetric.cli.run_lock import only_one
from volumetric.base.errors import CheckpointError
try:
    with only_one(Path({str(tmp_path)!r})):
        print("free")
except CheckpointError as error:
    print(error)
"""

    def other() -> str:
        return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    with only_one(tmp_path):
        assert f"in process {os.getpid()}" in other()
    assert other() == "free\n"
    with only_one(tmp_path):
        pass


def test_a_lock_needs_a_directory_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"), only_one(tmp_path / "file"):
        pass


class FailsLater:
    """Scores until a generation that nobody survives."""

    separable = True

    def score_all(self, cohort: Cohort) -> Any:
        if cohort.generation == 2:
            raise RuntimeError("no luck")
        return np.arange(float(len(cohort)))


def test_the_champion_of_a_run_that_fails_is_kept(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("population = 10\nfitness_threshold = 1e9\n")
    with (
        evolve_job.open_new_run(tmp_path / "job.toml", {}) as (job, run, _),
        pytest.raises(EvaluationError, match="no luck"),
    ):
        evolve_job.evolve_opened(job, run, FailsLater(), lambda: False)
    assert run.champion is not None
    assert Genome.load(tmp_path / "job" / "champion.json") == run.champion.genome
    assert generations(tmp_path / "job") == [0, 1]
