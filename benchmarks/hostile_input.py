"""What hostile chat templates and damaged model files do: time, memory, and errors that are not this package's own.

    python -m benchmarks hostile_input                    # 10,000 mutations and all templates, some minutes
    python -m benchmarks hostile_input --only templates
    python -m benchmarks hostile_input --only mutations --kinds gguf lora --mutations 500
    python -m benchmarks hostile_input --only mutations --from 4321 --mutations 1     # one of them again

Every input runs in a child process that is watched from outside: one that takes longer than ten seconds counts as a
hang and is killed. Printed are counts for each reader, the slowest inputs, and the largest resident memory of a child.
The exit status is 1 if there was a foreign exception, a hang, or more than 1 GiB.
"""

from __future__ import annotations

import argparse
import collections
import functools
import logging
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from benchmarks.hostile_files import Damaged, kinds
from benchmarks.hostile_uses import MESSAGES
from volumetric.base.errors import VolumetricError
from volumetric.loaders import ChatTemplate

TEMPLATES = Path(__file__).parent / "data" / "hostile_templates.txt"
HANG_SECONDS, MOST_BYTES = 10.0, 2**30
Outcome = tuple[str, str]
"""Kind of what happened (``"ok"``, the name of an own error, or ``"FOREIGN …"``), and the first words of it."""


def read_templates() -> dict[str, str]:
    """Name → source: those of the file, and some that are made here because of their length."""
    found: dict[str, str] = {}
    name = ""
    for line in TEMPLATES.read_text(encoding="utf-8").splitlines():
        if line.startswith("@ "):
            name = line[2:]
        elif not line.startswith("#"):
            found[name] = line.replace("LONG", "x" * 50_000).replace("COUNTS", "{% set y = x.count('a') %}" * 2000)
    return found | {
        "many outputs": "{{ a }}" * 9_000,
        "many branches": "{% if a == 1 %}b{% endif %}" * 3_000,
        "many loops": "{% for i in range(99999) %}{% endfor %}" * 2_500,
        "many numbers as keys": "{{ {" + ",".join(f"{i * (2**61 - 1)}: 1" for i in range(6000)) + "} | length }}",
        "many brackets": "{{ " + "(" * 100_000 + ")" * 100_000 + " }}",
        "many lists": "{{ " + "[" * 90 + "1" + "]" * 90 + " }}",
        "many concatenations": "{{ " + "~".join(["'a'"] * 19_000) + " }}",
        "many sums": "{{ " + "+".join(["1"] * 300) + " }}",
        "many filters": "{{ 'a' " + "| upper " * 300 + "}}",
        "many attributes": "{{ a" + ".b" * 300 + " }}",
        "nested conditions": "{% if a %}" * 10_000 + "{% endif %}" * 10_000,
        "nested loops of all depths": "{% for i in [1, 2] %}" * 60 + "x" + "{% endfor %}" * 60,
        "nested macros": "{% macro f0() %}a{% endmacro %}" + "".join(map(_doubling, range(1, 60))) + "{{ f59() }}",
        "long text": "x" * 249_000,
        "too long text": "x" * 300_000,
        "not closed": "{{ 'a" * 50_000,
        "many comments": "{#" * 50_000,
    }


def _doubling(number: int) -> str:
    """Source of a macro that calls the one before it twice."""
    before = f"{{{{ f{number - 1}() }}}}"
    return f"{{% macro f{number}() %}}{before}{before}{{% endmacro %}}"


def render(source: str) -> None:
    """Render a template as `Model.chat` would."""
    ChatTemplate({"default": source}, {"bos_token": "<s>"}, "hostile").render(MESSAGES)


def outcome_of(call: Callable[[], object]) -> Outcome:
    """Say how a call ended."""
    try:
        call()
    except VolumetricError as error:
        return type(error).__name__, ascii(str(error))[:100]
    except BaseException as error:  # PanicException of Rust is none of Exception's
        return f"FOREIGN {type(error).__name__}", ascii(str(error))[:200]
    return "ok", ""


def worker(link: Connection, what: str, numbers: tuple[int, int], home: str, chosen: list[str] | None) -> None:
    """Child: run inputs ``begin … end-1`` and report each; files go into `home`."""
    logging.disable(logging.CRITICAL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Rust writes of its panics there
    templates = list(read_templates().items())
    models = Damaged(Path(tempfile.mkdtemp(dir=home)), chosen) if what == "mutations" else None
    for number in range(*numbers):
        if models is None:
            name, source = templates[number]
            call: Callable[[], object] = functools.partial(render, source)
        else:
            name, call = models.attempt(number)
        link.send((number, name))
        outcome = outcome_of(call)
        link.send((outcome, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
    link.send(None)


class Tally:
    """What happened to all inputs of one kind."""

    def __init__(self) -> None:
        self.outcomes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.times: list[tuple[float, str]] = []
        self.bad: list[str] = []
        self.peak = 0

    def add(self, name: str, number: int, outcome: Outcome, seconds: float, peak: int) -> None:
        """Take note of one input."""
        group = name if "/" in name else "templates"
        self.outcomes[group][outcome[0]] += 1
        self.times.append((seconds, f"{name} #{number}"))
        if outcome[0].startswith("FOREIGN") or seconds > HANG_SECONDS or (peak > max(self.peak, MOST_BYTES)):
            self.bad.append(f"{name} #{number}: {outcome[0]} {outcome[1]} after {seconds:.1f} s, peak {peak >> 20} MiB")
        self.peak = max(self.peak, peak)

    def show(self) -> None:
        """Print it."""
        for name, counts in sorted(self.outcomes.items()):
            print(f"  {name:44}", ", ".join(f"{kind} {count}" for kind, count in counts.most_common()))
        slowest = sorted(self.times, reverse=True)[:5]
        print("  slowest:", "; ".join(f"{name} {seconds:.2f} s" for seconds, name in slowest))
        print(f"  inputs {len(self.times)}, largest resident memory {self.peak >> 20} MiB, faults {len(self.bad)}")
        for text in self.bad[:50]:
            print("  FAULT", text)


def run(what: str, begin: int, end: int, home: str, chosen: list[str] | None) -> Tally:
    """Run inputs in children, a new one after a hang or a crash."""
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    while begin < end:
        ours, theirs = context.Pipe()
        child = context.Process(target=worker, args=(theirs, what, (begin, end), home, chosen), daemon=True)
        child.start()
        theirs.close()
        begin = _follow(cast("Connection", ours), child, tally, begin)
    return tally


def _follow(link: Connection, child: Any, tally: Tally, begin: int) -> int:
    """Read a child's reports to its end; return the number of the input to go on with."""
    number, name = begin, ""
    try:
        while (told := link.recv()) is not None:
            number, name = told
            started = time.perf_counter()
            if not link.poll(3 * HANG_SECONDS):
                child.kill()
                tally.add(name, number, ("HANG", ""), time.perf_counter() - started, 0)
                return number + 1
            outcome, peak = link.recv()
            tally.add(name, number, outcome, time.perf_counter() - started, peak)
    except EOFError:
        child.join()
        if not name:
            sys.exit("a child cannot start")
        tally.add(name, number, (f"FOREIGN death with status {child.exitcode}", ""), 0.0, 0)
    return number + 1


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--only", choices=["templates", "mutations"])
    parser.add_argument("--kinds", nargs="*", default=[], help="only kinds whose names begin so")
    given = parser.parse_args()
    chosen = [name for name in kinds() if name.startswith(tuple(given.kinds))] if given.kinds else []
    bad = False
    for what in ("templates", "mutations"):
        if given.only in (None, what):
            start, count = (0, len(read_templates())) if what == "templates" else (given.first, given.mutations)
            began = time.perf_counter()
            with tempfile.TemporaryDirectory() as home:
                tally = run(what, start, start + count, home, chosen or None)
            print(f"{what}: {time.perf_counter() - began:.0f} s")
            tally.show()
            bad = bad or bool(tally.bad)
    sys.exit(bad)


if __name__ == "__main__":
    main()
