"""What goes wrong in a module of one's own is told with its file and line, and not as a defect of the package."""

from __future__ import annotations

import functools
import itertools
import json
import sys
from pathlib import Path

import pytest

from volumetric.cli import exits, main

NUMBERS = itertools.count()
TRAIN = """
device = "reference"
[train]
loss = "{module}:f"
"""
EVOLVE = """
population = 6
generations = 1
fitness = "{module}:f"
[genome]
inputs = 2
outputs = 1
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a verb on a configuration beside a module: what stderr says of it, and the module's name."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(verb: str, text: str, code: str) -> tuple[str, str]:
        module = f"mine{next(NUMBERS)}"
        (tmp_path / f"{module}.py").write_text(code)
        (tmp_path / "job.toml").write_text(text.format(module=module))
        assert main([verb, str(tmp_path / "job.toml")]) == exits.FAILED
        return capsys.readouterr().err, module

    return call


LOSSES = {
    "types": ("def f(work, y, t):\n    return work.binary('sub', y, t) + len(3)\n", "TypeError", 2),
    "operand": ("def f(work, y, t):\n    return work.binary('sub', y, t) + 'a'\n", "cannot be combined with 'a'", 2),
    "key": ("def f(work, y, t):\n    return {}['size']\n", "KeyError: 'size'", 2),
    "import": ("import json\njson.loads('{')\n", "JSONDecodeError", 2),
    "arguments": ("def f(prediction):\n    return prediction\n", "takes 1 arguments", None),
    "name": ("def g(work, y, t):\n    return y\n", "has no 'f'", None),
    "syntax": ("def f(work, y, t)\n    return y\n", "SyntaxError", None),
    "module": ("import a_module_that_is_not\n", "needs 'a_module_that_is_not'", None),
}
FITNESSES = {
    "division": ("def f(genome, rng):\n    return 1 / 0\n", "ZeroDivisionError", 2),
    "number": ("f = 3\n", "must be a function, got int", None),
}
"""A module, what is told of it, and the line of it that is named where it was run."""


@pytest.mark.parametrize(
    ("verb", "text", "code", "what", "line"),
    [
        pytest.param(verb, text, *case, id=f"{verb} {name}")
        for verb, text, cases in (("train", TRAIN, LOSSES), ("evolve", EVOLVE, FITNESSES))
        for name, case in cases.items()
    ],
)
def test_an_error_of_the_person_s_own_code_is_told_as_such(told, verb, text, code, what, line):
    err, module = told(verb, text, code)
    assert what in err
    assert "defect" not in err
    if line is None:
        assert "Traceback" not in err
    else:
        assert f"{module}.py, line {line}" in err


def test_an_error_of_no_code_of_theirs_is_told_as_a_defect(capsys):
    assert exits.run_guarded(functools.partial(json.loads, "{"), debug=False, verb="train") == exits.FAILED
    assert "this is a bug" in capsys.readouterr().err
