"""From exceptions to two lines on stderr and an exit code; no traceback unless ``--debug`` asks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import cyclopts

from volumetric.errors import VolumetricError

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class UsageError(VolumetricError):
    """The flags do not make sense together."""


def guard(run: Callable[[], Any], *, debug: bool, verb: str) -> int:
    """Call `run` and return the exit code of what happened."""
    try:
        result = run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return explain(INTERRUPTED, "interrupted", None)
    except BrokenPipeError:
        # The reader of our stdout has gone, as in `volumetric … | head`; Python would complain again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if debug and not isinstance(error, cyclopts.CycloptsError):
            raise
        return _classify(error, verb)
    return result if isinstance(result, int) else OK


def _classify(error: Exception, verb: str) -> int:
    match error:
        case UsageError():
            return explain(USAGE, str(error), error.hint or _usage_hint(verb))
        case cyclopts.CycloptsError():
            return explain(USAGE, str(error), _usage_hint(verb))
        case VolumetricError():
            return explain(FAILED, str(error), error.hint)
        case OSError(filename=str() as name, strerror=str() as reason):
            return explain(FAILED, f"{name}: {reason}", "check the path and its permissions")
        case OSError():
            return explain(FAILED, str(error), None)
        case UnicodeDecodeError():
            return explain(FAILED, f"the input is not UTF-8 text: {error}", None)
        case MemoryError():
            return explain(FAILED, "out of memory", "a smaller --context or --dtype needs less")
        case _:
            what = f"{type(error).__name__}: {error}"
            return explain(FAILED, f"unexpected {what}", "this is a defect; --debug shows where it happened")


def _usage_hint(verb: str) -> str:
    from volumetric.cli import VERBS

    return f"see: volumetric {verb} --help" if verb in VERBS else "see: volumetric --help"


def explain(code: int, message: str, hint: str | None) -> int:
    """Write what went wrong, and what to do, to stderr; return `code`."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code
