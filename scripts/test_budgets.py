"""Write tests/budgets.json: how many CPU kernels and GPU pipelines the tests of each file may ask for.

    pytest --costs costs.jsonl && python scripts/test_budgets.py costs.jsonl    # of all files that ran
    python scripts/test_budgets.py costs.jsonl --slowest 30                     # and which tests took longest

A tenth is added to what was counted: another processor or GPU takes other kernels. Budgets only grow, for a run of some
tests counts too little; to lower those of a file, take its line out and run all of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.costs import BUDGETS, KINDS


def main() -> None:
    """Read the lines and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("costs", type=Path, help="what `pytest --costs` wrote")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print N files and N functions by seconds")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.costs.read_text(encoding="utf-8").splitlines()]
    counted: dict[str, dict[str, int]] = {}
    for line in lines:
        file = line["test"].partition("::")[0]
        most = counted.setdefault(file, dict.fromkeys(KINDS, 0))
        for kind in KINDS:
            most[kind] = max(most[kind], line.get(kind, 0))
    table = json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}
    for file, most in counted.items():
        before = table.get(file, {})
        budget = {kind: max(before.get(kind, 0), count + (count + 9) // 10) for kind, count in most.items()}
        table[file] = {kind: count for kind, count in budget.items() if count}
    kept = {file: table[file] for file in sorted(table) if table[file] and (BUDGETS.parents[1] / file).exists()}
    rows = ",\n".join(f"  {json.dumps(file)}: {json.dumps(most)}" for file, most in kept.items())
    BUDGETS.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    if options.slowest:
        _print_slowest(lines, options.slowest)


def _print_slowest(lines: list[dict[str, float | str]], count: int) -> None:
    for title, last in (("files", 1), ("functions", 2)):
        seconds = defaultdict[str, float](float)
        for line in lines:
            seconds["::".join(str(line["test"]).partition("[")[0].split("::")[:last])] += float(line["cpu"])
        print(f"processor seconds of {title}: {sum(seconds.values()):.0f} in all")
        for name, total in sorted(seconds.items(), key=lambda pair: -pair[1])[:count]:
            print(f"{total:8.1f}  {name}")


if __name__ == "__main__":
    main()
