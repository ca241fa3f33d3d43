"""Judge the faults of `plant_faults.py`: plant each in a copy of the checkout, and run tests that reach it there."""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).parents[1]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Limits:
    """How long judging may take.

    Attributes
    ----------
    tests : most tests for a fault
    budget : most seconds that they took when they reached it, one of each file aside
    seconds : a test that takes longer hangs
    minutes : no fault is planted later than this after the start
    jobs : faults judged at once, each in a copy of its own
    """

    tests: int
    budget: float
    seconds: int
    minutes: float
    jobs: int


def judge(folder: Path, limits: Limits, only: list[int]) -> None:
    """Plant the faults that were not judged yet, or those of `only`, and add the outcomes to ``outcomes.jsonl``."""
    started = time.monotonic()
    plan = json.loads((folder / "plan.json").read_text())
    outcomes = folder / "outcomes.jsonl"
    judged = {row["id"] for row in rows(folder)}
    tests = _tests(folder, plan, limits)
    waiting = [fault for fault in plan if (fault["id"] in only if only else fault["id"] not in judged)]
    copies = _copies(folder, limits.jobs)

    def judged_in_copy(fault: dict[str, Any]) -> dict[str, Any] | None:
        if time.monotonic() - started > 60 * limits.minutes:
            return None
        copy = copies.get()
        try:
            return _judge(copy, fault, tests[fault["id"]], limits.seconds)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(limits.jobs) as pool:
        for future in as_completed([pool.submit(judged_in_copy, fault) for fault in waiting]):
            if (row := future.result()) is None:
                continue
            with outcomes.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{row['id']:4} {row['outcome']:10} {row['path']}:{row['line']} {row['kind']} {row['by']}", flush=True
            )


def rows(folder: Path) -> list[dict[str, Any]]:
    """The last outcome of each fault, without those that only a test noticed that fails without any."""
    path, unsound = folder / "outcomes.jsonl", _unsound(folder)
    if not path.exists():
        return []
    last = {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}
    return [row for row in last.values() if row["by"] not in unsound]


def check(folder: Path, limits: Limits) -> None:
    """Run the tests that noticed a fault without any; those that fail are left out from then on (``unsound.txt``)."""
    files: dict[str, set[str]] = defaultdict(set)
    for row in rows(folder):
        if row["by"]:
            files[row["by"].split("::")[0]].add(row["by"])
    copies = _copies(folder, limits.jobs)

    def failing(tests: set[str]) -> list[str]:
        copy = copies.get()
        try:
            command = [*_pytest(limits.seconds), *sorted(tests)]
            result = subprocess.run(
                command, cwd=copy, env=_environment(copy), capture_output=True, text=True, check=False
            )
        finally:
            copies.put(copy)
        failed = _FAILED.findall(result.stdout)
        return [test for test in tests if any(_names(line, test) for line in failed)] if result.returncode else []

    with ThreadPoolExecutor(limits.jobs) as pool:
        unsound = [test for tests in pool.map(failing, files.values()) for test in tests]
    with (folder / "unsound.txt").open("a") as file:
        file.writelines(f"{test}\n" for test in unsound)
    print(f"{len(unsound)} of {sum(map(len, files.values()))} tests fail without a fault")


def _unsound(folder: Path) -> set[str]:
    path = folder / "unsound.txt"
    return set(path.read_text().splitlines()) if path.exists() else set()


def _copies(folder: Path, jobs: int) -> SimpleQueue[Path]:
    """Copies of the checkout, without what is hidden."""
    shutil.rmtree(folder / "copies", ignore_errors=True)
    copies: SimpleQueue[Path] = SimpleQueue()
    first = (folder / "copies" / "0").resolve()
    shutil.copytree(ROOT, first, ignore=shutil.ignore_patterns(".*", "__pycache__", folder.name))
    # Compiled modules are held to the hash of their source: a fault and what it replaces may have one size and second.
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(first / "volumetric", quiet=1, workers=jobs, invalidation_mode=mode)
    copies.put(first)
    for job in range(1, jobs):
        copies.put(shutil.copytree(first, first.with_name(str(job))))
    return copies


def _judge(copy: Path, fault: dict[str, Any], tests: list[str], seconds: int) -> dict[str, Any]:
    started = time.monotonic()
    outcome, by = _outcome(copy, fault, tests, seconds) if tests else ("unreached", "")
    row = {name: fault[name] for name in ("id", "path", "line", "kind", "before", "after")}
    took = round(time.monotonic() - started, 1)
    return row | {"outcome": outcome, "by": by, "tests": len(tests), "seconds": took}


def _outcome(copy: Path, fault: dict[str, Any], tests: list[str], seconds: int) -> tuple[str, str]:
    path = copy / str(fault["path"])
    sound = path.read_bytes()
    if sound[fault["start"] : fault["end"]].decode(errors="replace") != fault["before"]:
        return "moved", ""  # the file has changed since the fault was chosen
    path.write_bytes(sound[: fault["start"]] + str(fault["after"]).encode() + sound[fault["end"] :])
    try:
        result = subprocess.run(
            [*_pytest(seconds), "-x", *tests],
            cwd=copy,
            env=_environment(copy),
            capture_output=True,
            text=True,
            timeout=4 * seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "unfinished", ""  # no test hung, but all together took too long
    finally:
        path.write_bytes(sound)
    if result.returncode == 0:
        return "survives", ""
    if "+++ Timeout +++" in result.stdout + result.stderr:
        return "hangs", ""
    failed = _FAILED.findall(result.stdout)
    named = [test for test in tests if any(_names(line, test) for line in failed)]
    return "noticed", max(named, key=len, default="")


def _names(line: str, test: str) -> bool:
    return line == test or line.startswith(f"{test} - ")


def _pytest(seconds: int) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--timeout={seconds}", "-p", "no:cacheprovider"]


def _environment(copy: Path) -> dict[str, str]:
    path = [str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}


def _tests(folder: Path, plan: list[dict[str, Any]], limits: Limits) -> dict[int, list[str]]:
    """For each fault tests that reach it and pass without it: the quickest of each file first, of the nearest first."""
    seconds: dict[str, float] = {}
    if (times := folder / "reached.tsv.seconds").exists():
        for line in times.read_text().splitlines():
            duration, test = line.split("\t")
            seconds[test] = float(duration)
    for test in _unsound(folder):
        seconds.pop(test, None)
    reached: dict[int, set[str]] = defaultdict(set)
    if (lines := folder / "reached.tsv").exists():
        for line in lines.read_text().splitlines():
            fault, test = line.split("\t")
            reached[int(fault)].add(test)
    result: dict[int, list[str]] = {}
    for fault in plan:
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(reached[fault["id"]] & seconds.keys(), key=seconds.__getitem__):
            by_file[test.split("::")[0]].append(test)
        parts = set(re.split(r"\W|_", fault["path"]))
        order = [
            (turn, -len(parts & set(re.split(r"\W|_", test.split("::")[0]))), seconds[test], test)
            for tests in by_file.values()
            for turn, test in enumerate(tests)
        ]
        chosen, total = [], 0.0
        for _, _, took, test in sorted(order):
            if total + took <= limits.budget or not chosen:
                chosen.append(test)
                total += took
        result[fault["id"]] = chosen[: limits.tests]
        if fault["kernel"] and not chosen:
            result[fault["id"]] = list(_tests_of_kernel(str(fault["module"])))
    return result


def _tests_of_kernel(module: str) -> Iterator[str]:
    """Files of tests that name a module of kernels, and then all of kernels."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = module, f"import {module.rsplit('.', 1)[-1]}"
    naming = [path for path in files if any(name in path.read_text() for name in names)]
    for path in dict.fromkeys([*naming, *(path for path in files if path.parent.name in ("cpu", "cpu_graph"))]):
        yield path.relative_to(ROOT).as_posix()
