"""``python -m benchmarks NAME …`` runs a suite or a program of this folder; without a name it lists them."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import cyclopts

from volumetric.base.errors import VolumetricError
from volumetric.base.hints import suggestion
from volumetric.cli import exits

HERE = Path(__file__).parent
SUITES = ("layers", "training", "systolic", "stacks", "fabric", "program")


def programs() -> dict[str, str]:
    """Return the first line of what each program of this folder says of itself."""
    found: dict[str, str] = {}
    for path in sorted(HERE.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not path.name.startswith("__") and "__main__" in text and not path.stem.endswith("_worker"):
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return found


def suites() -> cyclopts.App:
    """Return the command line of the suites."""
    built = cyclopts.App(
        name="python -m benchmarks",
        help="Suites, and programs that measure one thing each: NAME --help says more.",
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        help_epilogue="Programs:\n\n" + "\n".join(f"- {name}: {text}" for name, text in programs().items()),
    )
    for name in SUITES:
        built.command(f"benchmarks.suites.commands:{name}", name=name, help_epilogue="")
    return built


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a suite or a program; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0].removesuffix(".py") if words else ""
    known = programs()
    if name and name not in (*SUITES, *known) and not name.startswith("-"):
        hint = suggestion(name, (*SUITES, *known), "`python -m benchmarks` lists them")
        return exits.explain(exits.USAGE, f"there is no benchmark {name!r}", hint)
    try:
        if name not in known:
            result = suites()(words)
            return result if isinstance(result, int) else exits.OK
        sys.argv = [str(HERE / f"{name}.py"), *words[1:]]
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    except (exits.UsageError, cyclopts.CycloptsError) as error:
        more = f"see: python -m benchmarks {f'{name} ' if name in SUITES else ''}--help"
        return exits.explain(exits.USAGE, str(error), getattr(error, "hint", None) or more)
    except VolumetricError as error:
        return exits.explain(exits.FAILED, str(error), error.hint)
    return exits.OK


if __name__ == "__main__":
    raise SystemExit(main())
