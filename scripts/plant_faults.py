"""Plant small faults at random places of the package, one at a time, and see whether a test notices each.

    python scripts/plant_faults.py choose faults/ --count 200 --seed 1    # faults/plan.json
    python scripts/plant_faults.py reach faults/ -n 2      # one run of the tests: which test reaches which place
    python scripts/plant_faults.py run faults/ --jobs 2    # faults/outcomes.jsonl; goes on where it stopped
    python scripts/plant_faults.py check faults/           # whether the tests that noticed pass without a fault
    python scripts/plant_faults.py report faults/

A fault removes a statement (a call, an assignment to an attribute or an element, an early exit), swaps a comparison,
shifts an integer by one, or drops a mask (an operand of ``and``, ``or``, ``&`` or ``|``, a ``not``, a branch of
``where``, a bound of ``min`` or ``max``). Places are drawn from all parts in proportion to what they have. Messages of
errors are left out: a fault there changes no behaviour. Faults are planted in a copy of the checkout. Those in compiled
kernels, whose Python never runs, are held to the tests that ask for a kernel made of the function (`reached_kernels`).

A fault counts as noticed if a test fails, hangs or cannot be collected. ``run`` takes the quickest tests that reach the
place, from as many files as it can, up to ``--tests`` of them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from judge_faults import Limits, check, judge, rows

ROOT = Path(__file__).parents[1]
KERNELS = "volumetric/devices/cpu/kernels/"
PLAIN = ("jit", "kernel_files", "operations", "parts", "target")
"""Modules among the kernels whose Python runs."""
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
        return self.path.startswith(KERNELS) and Path(self.path).stem not in PLAIN


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
    path = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {
        "FAULTS_PLAN": str(folder.resolve() / "plan.json"),
        "FAULTS_REACHED": str(folder.resolve() / "reached.tsv"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(hooks.resolve()), str(ROOT), str(marks.parent), path])),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reached_faults", "--dist", "loadfile", *rest]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def report(folder: Path) -> None:
    """Print how many faults of each kind were noticed, and which were not."""
    judged = rows(folder)
    kinds = Counter((row["kind"], row["outcome"]) for row in judged)
    for kind in sorted({kind for kind, _ in kinds}):
        outcomes = {outcome: number for (name, outcome), number in sorted(kinds.items()) if name == kind}
        print(f"{kind:8} {outcomes}")
    noticed = sum(row["outcome"] in ("noticed", "hangs") for row in judged)
    print(f"{noticed} of {len(judged)} noticed ({100 * noticed / max(1, len(judged)):.1f} %)")
    for row in sorted(judged, key=lambda row: row["path"]):
        if row["outcome"] not in ("noticed", "hangs"):
            print(
                f"{row['id']:4} {row['outcome']:10} {row['path']}:{row['line']} {row['before']!r} -> {row['after']!r}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("choose", "reach", "run", "check", "report"):
        verbs.add_parser(verb).add_argument("folder", type=Path)
    verbs.choices["choose"].add_argument("--count", type=int, default=200)
    verbs.choices["choose"].add_argument("--seed", type=int, default=1)
    verbs.choices["run"].add_argument("--only", type=int, nargs="*", default=[], help="these faults, again")
    verbs.choices["run"].add_argument("--tests", type=int, default=25, help="most tests for a fault")
    verbs.choices["run"].add_argument("--budget", type=float, default=40, help="most seconds that they took before")
    verbs.choices["run"].add_argument("--minutes", type=float, default=1e9, help="plant none after this time")
    for verb in ("run", "check"):
        verbs.choices[verb].add_argument("--jobs", type=int, default=1, help="faults at once")
        verbs.choices[verb].add_argument("--seconds", type=int, default=120, help="most seconds for a test")
    options, rest = parser.parse_known_args()
    if options.verb == "choose":
        choose(options.folder, options.count, options.seed)
    elif options.verb == "reach":
        return reach(options.folder, rest)
    elif options.verb == "run":
        limits = Limits(options.tests, options.budget, options.seconds, options.minutes, options.jobs)
        judge(options.folder, limits, options.only)
    elif options.verb == "check":
        check(options.folder, Limits(0, 0, options.seconds, 0, options.jobs))
    else:
        report(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
