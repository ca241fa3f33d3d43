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


@pytest.mark.parametrize(
    ("verb", "text", "code", "what"),
    [
        ("train", TRAIN, "def f(work, y, t):\n    return work.binary('sub', y, t) + [1]\n", "TypeError"),
        ("train", TRAIN, "def f(work, y, t):\n    return {}['size']\n", "KeyError: 'size'"),
        ("evolve", EVOLVE, "def f(genome, rng):\n    return 1 / 0\n", "ZeroDivisionError"),
        ("train", TRAIN, "import json\njson.loads('{')\n", "JSONDecodeError"),
    ],
    ids=["types", "key", "fitness", "import"],
)
def test_an_error_of_the_person_s_own_code_has_its_line(told, verb, text, code, what):
    err, module = told(verb, text, code)
    assert what in err
    assert f"{module}.py, line 2" in err
    assert "defect" not in err


@pytest.mark.parametrize(
    ("verb", "text", "code", "message"),
    [
        ("train", TRAIN, "def f(prediction):\n    return prediction\n", "takes 1 arguments"),
        ("train", TRAIN, "def g(work, y, t):\n    return y\n", "has no 'f'"),
        ("train", TRAIN, "def f(work, y, t)\n    return y\n", "SyntaxError"),
        ("train", TRAIN, "import a_module_that_is_not\n", "needs 'a_module_that_is_not'"),
        ("evolve", EVOLVE, "f = 3\n", "is of type int"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(told, verb, text, code, message):
    err, _ = told(verb, text, code)
    assert message in err
    assert "defect" not in err
    assert "Traceback" not in err


def test_an_error_of_no_code_of_theirs_is_told_as_a_defect(capsys):
    assert exits.guard(functools.partial(json.loads, "{"), debug=False, verb="train") == exits.FAILED
    assert "this is a defect" in capsys.readouterr().err
