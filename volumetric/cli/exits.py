"""Converts exceptions to two lines on stderr and an exit code; a traceback is shown only with ``--debug``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import cyclopts

from volumetric.base.caller_location import caller_location
from volumetric.base.errors import VolumetricError
from volumetric.base.hints import path_hint
from volumetric.cli.flags import as_flags
from volumetric.cli.stdio import drop_unwritable, writing

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


_LESS: Final = {
    "train": "a smaller batch_size, or a smaller network, needs less",
    "run": "a smaller --batch or --dtype needs less",
    "evolve": "a smaller population, or fewer workers, need less",
}
"""Command → hint to use less memory, for commands that do not generate text."""


class UsageError(VolumetricError):
    """Invalid flags, or flags that contradict each other."""


def run_guarded(run: Callable[[], Any], *, debug: bool, verb: str) -> int:
    """Call `run` and return its exit code; errors are explained on stderr."""
    try:
        result = run()
        with writing():
            pass
    except KeyboardInterrupt:
        return explain(INTERRUPTED, "interrupted", None)
    except BrokenPipeError:
        return FAILED  # the reader of our stdout has closed it, as in `volumetric … | head`
    except Exception as error:
        if debug and not isinstance(error, cyclopts.CycloptsError):
            raise
        return _classify(error, verb)
    return result if isinstance(result, int) else OK


def _classify(error: Exception, verb: str) -> int:
    """Print an error with its hint, and return the exit status for it."""
    match error:
        case UsageError() | cyclopts.CycloptsError():
            from volumetric.cli.usage_errors import explain_usage  # only errors need it

            return explain(USAGE, *explain_usage(error, verb))
        case VolumetricError():
            return explain_error(error, verb)
        case OSError(filename=str() as name, strerror=str() as reason):
            return explain(FAILED, f"{name}: {reason}", path_hint(name))
        case OSError():
            reason = error.strerror or str(error)  # the parser, not `console`, writes help and version
            return explain(FAILED, f"cannot write to stdout: {reason}" if drop_unwritable() else reason, None)
        case UnicodeDecodeError():
            return explain(FAILED, f"the input is not UTF-8 text: {error}", None)
        case MemoryError():
            return explain(FAILED, "out of memory", _LESS.get(verb, "a smaller --context or --dtype needs less"))
        case _:
            what = f"{type(error).__name__}: {error}"
            own = caller_location(error)
            if own is not None:
                return explain(FAILED, f"{what} ({own})", "your own module raised it; --debug shows the traceback")
            return explain(FAILED, f"unexpected {what}", "this is a bug; --debug shows the traceback")


def explain_error(error: VolumetricError, verb: str) -> int:
    """Write an error of the library with flags in place of Python arguments; return `FAILED`."""
    return explain(FAILED, as_flags(str(error), verb), error.hint and as_flags(error.hint, verb))


def explain(code: int, message: str, hint: str | None) -> int:
    """Write an error and its hint to stderr; return `code`."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code
