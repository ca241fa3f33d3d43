"""Plant small faults at random places of the package, one at a time, and see whether a test notices each.

    python scripts/plant_faults.py choose faults/ --count 200 --seed 1    # faults/plan.json
    python scripts/plant_faults.py reach faults/ -n 2      # one run of the tests: which test reaches which place
    python scripts/plant_faults.py run faults/             # faults/outcomes.jsonl; goes on where it stopped
    python scripts/plant_faults.py report faults/

A fault removes a statement (a call, an assignment to an attribute or an element, an early exit), swaps a comparison,
shifts an integer by one, or drops a mask (an operand of ``and``, ``or``, ``&`` or ``|``, a ``not``, a branch of
``where``, a bound of ``min`` or ``max``). Places are drawn from all parts in proportion to what they have. Messages of
errors are left out: a fault there changes no behaviour. Faults are planted in a copy of the checkout. Those in compiled
kernels, whose Python never runs, are held to the tests that name their module, or else to all tests of kernels.

A fault counts as noticed if a test fails, hangs or cannot be collected. ``run`` takes the quickest tests that reach the
place, from as many files as it can, up to ``--tests`` of them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
KERNELS = "volumetric/kernels/cpu/"
COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
CHOICES = ("where", "maximum", "minimum", "max", "min")


@dataclass(frozen=True)
class Fault:
    """One edit: characters `start` to `end` of a file become `after`."""

    path: str
    line: int
    statement: int  # line of the statement that holds it
    kind: str
    start: int
    end: int
    before: str
    after: str

    @property
    def kernel(self) -> bool:
        return self.path.startswith(KERNELS)


class _Places(ast.NodeVisitor):
    """Every fault that a file has room for."""

    def __init__(self, path: str, text: str) -> None:
        self.faults: list[Fault] = []
        self._path, self._text = path, text
        self._lines = [0]
        for line in text.encode().splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._statements: list[int] = []
        self._deep = 0

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.AnnAssign | ast.arguments):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._deep += 1
            for part in node.body:
                self.visit(part)
            self._deep -= 1
            return
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                self.visit(part)
            return
        statement = isinstance(node, ast.stmt)
        if statement:
            self._statements.append(node.lineno)
        if self._deep:
            self._look(node)
        self.generic_visit(node)
        if statement:
            self._statements.pop()

    def _look(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt) and self._removable(node):
            self._add(node, "remove", "pass")
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._source(node.left), self._source(node.comparators[0])
            self._add(node, "compare", f"({left} {COMPARISONS[type(node.ops[0])]} {right})")
        elif isinstance(node, ast.Constant) and type(node.value) is int and node.value < 64:
            self._add(node, "shift", str(node.value + 1))
        elif isinstance(node, ast.BoolOp):
            for kept in node.values:
                self._add(node, "mask", f"({self._source(kept)})")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            self._add(node, "mask", f"({self._source(node.left)})")
            self._add(node, "mask", f"({self._source(node.right)})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._add(node, "mask", f"({self._source(node.operand)})")
        elif isinstance(node, ast.Call) and not node.keywords and len(node.args) in (2, 3):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CHOICES and not any(isinstance(value, ast.Starred) for value in node.args):
                for kept in node.args[-2:]:
                    self._add(node, "mask", f"({self._source(kept)})")

    @staticmethod
    def _removable(node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete():
                return True
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                return True
            case ast.If(body=[ast.Raise() | ast.Return() | ast.Continue() | ast.Break()], orelse=[]):
                return True
        return False

    def _source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._text, node) or ast.unparse(node)

    def _add(self, node: ast.expr | ast.stmt, kind: str, after: str) -> None:
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before = self._text.encode()[start:end].decode()
        if before != after and self._statements:
            statement = self._statements[-1]
            self.faults.append(Fault(self._path, node.lineno, statement, kind, start, end, before, after))


def choose(folder: Path, count: int, seed: int) -> None:
    """Draw `count` faults, at most one for each statement, from all parts of the package."""
    places: list[list[Fault]] = []
    for path in sorted((ROOT / "volumetric").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        finder = _Places(name, text := path.read_text())
        finder.visit(ast.parse(text))
        statements: dict[int, list[Fault]] = defaultdict(list)
        for fault in finder.faults:
            statements[fault.statement].append(fault)
        places += statements.values()
    rng = random.Random(seed)
    faults = [rng.choice(faults) for faults in rng.sample(places, count)]
    folder.mkdir(parents=True, exist_ok=True)
    plan = [
        {"id": index, "module": fault.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")}
        | asdict(fault)
        | {"kernel": fault.kernel}
        for index, fault in enumerate(faults)
    ]
    (folder / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    print(f"{count} of {sum(map(len, places))} faults in {len(places)} statements: {folder / 'plan.json'}")


def reach(folder: Path, rest: list[str]) -> int:
    """Run the tests once, with a mark at each planned place."""
    hooks = folder / "hooks"
    hooks.mkdir(exist_ok=True)
    marks = Path(__file__).with_name("reached_faults.py")
    (hooks / "sitecustomize.py").write_text(marks.read_text())
    environment = os.environ | {
        "FAULTS_PLAN": str(folder.resolve() / "plan.json"),
        "FAULTS_REACHED": str(folder.resolve() / "reached.tsv"),
        "PYTHONPATH": os.pathsep.join([str(hooks.resolve()), str(ROOT), str(marks.parent)]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reached_faults", "--dist", "loadfile", *rest]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def run(folder: Path, most: int, seconds: int, only: list[int]) -> None:
    """Plant each fault in a copy and run the tests that reach it."""
    plan = json.loads((folder / "plan.json").read_text())
    outcomes = folder / "outcomes.jsonl"
    judged = {json.loads(line)["id"] for line in outcomes.read_text().splitlines()} if outcomes.exists() else set()
    copy = (folder / "copy").resolve()
    shutil.rmtree(copy, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    tests = _tests(folder, plan)
    for fault in plan:
        if (fault["id"] in judged and not only) or (only and fault["id"] not in only):
            continue
        chosen = tests[fault["id"]][:most]
        outcome = _judge(copy, fault, chosen, seconds) if chosen else "unreached"
        row = {name: fault[name] for name in ("id", "path", "line", "kind", "before", "after")}
        with outcomes.open("a") as file:
            file.write(json.dumps(row | {"outcome": outcome, "tests": len(chosen)}) + "\n")
        print(f"{fault['id']:4} {outcome:10} {fault['path']}:{fault['line']} {fault['kind']}", flush=True)


def _judge(copy: Path, fault: dict[str, object], tests: list[str], seconds: int) -> str:
    path = copy / str(fault["path"])
    sound = path.read_bytes()
    start, end = int(str(fault["start"])), int(str(fault["end"]))
    if sound[start:end].decode() != fault["before"]:
        return "moved"  # the file has changed since the fault was chosen
    path.write_bytes(sound[:start] + str(fault["after"]).encode() + sound[end:])
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", f"--timeout={seconds}", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    try:
        result = subprocess.run(
            [*command, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=4 * seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        path.write_bytes(sound)
    return "survives" if result.returncode == 0 else "noticed"


def _tests(folder: Path, plan: list[dict[str, object]]) -> dict[int, list[str]]:
    """For each fault the tests that reach it, the quickest of each file first."""
    seconds: dict[str, float] = {}
    if (times := folder / "reached.tsv.seconds").exists():
        for line in times.read_text().splitlines():
            duration, test = line.split("\t")
            seconds[test] = float(duration)
    reached: dict[int, set[str]] = defaultdict(set)
    if (lines := folder / "reached.tsv").exists():
        for line in lines.read_text().splitlines():
            fault, test = line.split("\t")
            reached[int(fault)].add(test)
    result: dict[int, list[str]] = {}
    for fault in plan:
        number = int(str(fault["id"]))
        if fault["kernel"]:
            result[number] = list(_tests_of_kernel(str(fault["module"])))
            continue
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(reached[number], key=lambda test: seconds.get(test, 1e9)):
            by_file[test.split("::")[0]].append(test)
        order = [(turn, seconds.get(test, 1e9), test) for tests in by_file.values() for turn, test in enumerate(tests)]
        result[number] = [test for _, _, test in sorted(order)]
    return result


def _tests_of_kernel(module: str) -> Iterator[str]:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    naming = [
        path
        for path in files
        if module in path.read_text() or f"import {module.rsplit('.', 1)[-1]}" in path.read_text()
    ]
    kernels = [path for path in files if path.parent.name in ("cpu", "cpu_graph")]
    for path in dict.fromkeys([*naming, *kernels]):
        yield path.relative_to(ROOT).as_posix()


def report(folder: Path) -> None:
    """Print how many faults of each kind were noticed, and which were not."""
    rows = {row["id"]: row for row in map(json.loads, (folder / "outcomes.jsonl").read_text().splitlines())}
    kinds = Counter((row["kind"], row["outcome"]) for row in rows.values())
    for kind in sorted({kind for kind, _ in kinds}):
        outcomes = {outcome: number for (name, outcome), number in sorted(kinds.items()) if name == kind}
        print(f"{kind:8} {outcomes}")
    noticed = sum(row["outcome"] in ("noticed", "hangs") for row in rows.values())
    print(f"{noticed} of {len(rows)} noticed ({100 * noticed / max(1, len(rows)):.1f} %)")
    for row in sorted(rows.values(), key=lambda row: row["path"]):
        if row["outcome"] not in ("noticed", "hangs"):
            print(
                f"{row['id']:4} {row['outcome']:10} {row['path']}:{row['line']} {row['before']!r} -> {row['after']!r}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("choose", "reach", "run", "report"):
        verbs.add_parser(verb).add_argument("folder", type=Path)
    verbs.choices["choose"].add_argument("--count", type=int, default=200)
    verbs.choices["choose"].add_argument("--seed", type=int, default=1)
    verbs.choices["run"].add_argument("--tests", type=int, default=25, help="most tests for a fault")
    verbs.choices["run"].add_argument("--seconds", type=int, default=120, help="most seconds for a test")
    verbs.choices["run"].add_argument("--only", type=int, nargs="*", default=[], help="these faults, again")
    options, rest = parser.parse_known_args()
    if options.verb == "choose":
        choose(options.folder, options.count, options.seed)
    elif options.verb == "reach":
        return reach(options.folder, rest)
    elif options.verb == "run":
        run(options.folder, options.tests, options.seconds, options.only)
    else:
        report(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
