"""``python -m benchmarks`` lists suites and programs and runs them; `volumetric bench` names it for suites."""

from __future__ import annotations

import sys

import pytest

from benchmarks.__main__ import SUITES, main, programs
from benchmarks.suites.commands import SuiteOptions
from benchmarks.timing import spread
from benchmarks.workers import Worker, run_once
from volumetric.base.errors import DeviceError
from volumetric.cli import main as volumetric


def test_suites_run_on_the_first_number_of_threads() -> None:
    for threads, count in ((None, None), ("2", 2), ("3,1", 3)):
        assert SuiteOptions(threads=threads).count == count


def test_suites_and_programs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in (*SUITES, *programs()))
    assert not set(SUITES) & set(programs())
    assert main(["no_such"]) == 2
    assert "there is no benchmark 'no_such'\nhint: `python -m benchmarks` lists them" in capsys.readouterr().err
    assert main(["layer"]) == 2
    assert "layers" in capsys.readouterr().err
    assert main(["layers", "--none"]) == 2
    assert "hint: see: python -m benchmarks layers --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--suite", "stacks"], "python -m benchmarks stacks"),
        (["--suite", "layers", "--only", "dense"], "python -m benchmarks layers"),
        (["--suite", "layers", "--torch-python", "python"], "python -m benchmarks layers"),
        (["--suite", "speed"], "python -m benchmarks --help"),
    ],
)
def test_a_suite_that_bench_had_is_named(flags: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert volumetric(["bench", *flags]) == 2
    assert hint in capsys.readouterr().err


def test_workers_answer_or_say_why_not(tmp_path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "echo.py"
    script.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    print('a library says hello')\n"
        "    answer = {'double': 2 * json.loads(line)} if line != '0\\n' else {'error': 'no'}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    with Worker(sys.executable, script, name="echo", missing="send another") as worker:
        assert worker.ask(4) == {"double": 8}
        with pytest.raises(DeviceError, match="echo: no"):
            worker.ask(0)
    worker = Worker(sys.executable, tmp_path / "nothing.py", name="echo")
    with worker, pytest.raises(DeviceError, match="the echo process ended"):
        worker.answer()
    assert "nothing.py" in capfd.readouterr().err
    once = tmp_path / "once.py"
    once.write_text("import os, sys\nprint(1)\nprint(os.environ['SAYS'], sys.argv[1])\n")
    assert run_once(sys.executable, once, "b", environment={"SAYS": "a"}) == "a b"
    with pytest.raises(DeviceError, match=r"once\.py: KeyError: 'SAYS'"):
        run_once(sys.executable, once, "b")


def test_a_spread_is_a_median_and_extremes() -> None:
    assert spread([3.0, 1.0, 2.5]) == "2 (1–3)"
    assert spread([3.0, 1.0, 2.5], ".1f") == "2.5 (1.0–3.0)"
