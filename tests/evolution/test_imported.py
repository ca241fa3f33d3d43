"""Functions that a configuration names: found beside it, and what is wrong is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.base.import_by_name import import_function
from volumetric.evolution.evaluate import Problem
from volumetric.evolution.evolution_job import job_from, open_problem, open_run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    (tmp_path / "made_neighbour.py").write_text("TOP = 2.0\n")
    (tmp_path / "made_tasks.py").write_text(
        "import numpy as np\n"
        "from made_neighbour import TOP\n"
        "from volumetric.evolution import batched\n"
        "number = 3\n"
        "class Maze:\n"
        "    @staticmethod\n"
        "    def score(genome):\n"
        "        return TOP\n"
        "def three(genome, rng, more):\n"
        "    return 1.0\n"
        "@batched\n"
        "def together(cohort):\n"
        "    return np.arange(len(cohort))\n"
        "def answers(cohort):\n"
        "    return cohort.activate(np.eye(2))[:, :, 0]\n"
    )
    (tmp_path / "made_broken.py").write_text("x = 1\ny = x / 0\n")
    (tmp_path / "made_garbled.py").write_text("def f(:\n")
    (tmp_path / "made_needy.py").write_text("import made_nowhere\n")
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("made_"):
            del sys.modules[name]


def test_functions_methods_and_problems_are_found(home: Path) -> None:
    assert import_function("made_tasks:Maze.score", home)(None) == 2.0
    assert import_function("made_tasks.py:Maze.score", home)(None) == 2.0
    assert isinstance(import_function("made_tasks:together", home), Problem)


@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [
        ("made_tasks", "does not name a function", "module:function"),
        ("made tasks:score", "does not name a function", "module:function"),
        ("made_task:score", "no module named 'made_task'", "made_task.py"),
        ("made_tasks:togethr", "no 'togethr'", "together"),
        ("made_tasks:Maze.scor", "no 'scor'", "score"),
        ("made_tasks:number", "must be a function, got int", "function"),
        ("made_broken:f", r"ZeroDivisionError: .* \(made_broken.py, line 2\)", "run the module directly"),
        ("made_garbled:f", r"SyntaxError: .* \(line 1\)", "run the module directly"),
        ("made_needy:f", "made_needy needs 'made_nowhere'", ""),
    ],
)
def test_what_cannot_be_imported_is_told(home: Path, name: str, wrong: str, hint: str) -> None:
    with pytest.raises(SpecError, match=wrong) as caught:
        import_function(name, home)
    assert hint in str(caught.value.hint)


def test_a_job_takes_its_fitness_from_a_module(home: Path) -> None:
    job = job_from({"fitness": "made_tasks:together", "population": 8}, home=home)
    problem = open_problem(job)
    assert open_run(job, problem).evolve(problem, 1).fitness == 7
    with pytest.raises(SpecError, match="cannot be called with a genome"):
        open_problem(job_from({"fitness": "made_tasks:three"}, home=home))
    with pytest.raises(SpecError, match="exclude each other"):
        job_from({"fitness": "made_tasks:together", "problem": "xor"}, home=home)


def test_a_job_searches_for_novelty(home: Path) -> None:
    section = {"behave": "made_tasks:answers", "neighbours": 3, "additions": 2}
    job = job_from({"search": "novelty", "population": 12, "novelty": section}, home=home)
    problem = open_problem(job)
    run = open_run(job, problem)
    run.evolve(problem, 3)
    archive = problem.archive  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    assert (archive.config.neighbours, len(archive)) == (3, 6)
    assert np.ptp(run.score) > 0


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ({"search": "novelty"}, "behave is missing"),
        ({"search": "novelty", "fitness": "a:b"}, "does not use fitness"),
        ({"search": "novelty", "novelty": {"behave": "made_tasks:nothing"}}, "behave = 'made_tasks:nothing'"),
        ({"search": "novelty", "novelty": {"behave": "made_tasks:answers", "neighbours": 0}}, "neighbours"),
        ({"search": "novelty", "novelty": {"neighbors": 3}}, "neighbors"),
        ({"novelty": {"neighbours": 3}}, "is not used"),
        ({"search": "novel"}, "novel"),
        ({"search": "novelty", "problem": "xor", "novelty": {"behave": "made_tasks:answers"}}, "does not use problem"),
    ],
)
def test_novelty_that_cannot_be_searched_for(home: Path, table: dict[str, object], wrong: str) -> None:
    with pytest.raises(SpecError, match=wrong):
        open_problem(job_from(table, home=home))


def test_a_module_that_was_written_a_moment_ago_is_found(home: Path) -> None:
    """Python remembers what a folder held, by its time, which may be the same after a file came."""
    with pytest.raises(SpecError, match="no module named 'made_later'"):
        import_function("made_later:f", home)
    before = home.stat()
    (home / "made_later.py").write_text("def f():\n    return 3\n")
    os.utime(home, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert import_function("made_later:f", home)() == 3
