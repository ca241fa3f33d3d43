"""Converts exceptions to two lines on stderr and an exit code; a traceback is shown only with ``--debug``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
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


_NEARLY: Final = 0.75
"""Least similarity of a suggested name, from 0 to 1."""


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
        case UsageError():
            return explain(USAGE, str(error), error.hint or _usage_hint(verb))
        case cyclopts.UnknownOptionError():
            return explain(USAGE, *_unknown_option(error, verb))
        case cyclopts.UnknownCommandError():
            return explain(USAGE, *_unknown_command(error))
        case cyclopts.UnusedCliTokensError():
            return explain(USAGE, *_too_many(error, verb))
        case cyclopts.CycloptsError():
            return explain(USAGE, str(error), _settable(error, verb) or _usage_hint(verb))
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


def _settable(error: cyclopts.CycloptsError, verb: str) -> str | None:
    """Return the hint for a key of a configuration file that was given as a flag; None if it is not one."""
    token = getattr(error, "token", None)
    if verb not in ("train", "evolve") or not isinstance(error, cyclopts.UnknownOptionError) or token is None:
        return None
    name = (token.keyword or token.value or "").lstrip("-").partition("=")[0].replace("-", "_")
    from volumetric.base import config_tables

    if verb == "train":
        from volumetric.train.settings import DataSettings, TrainConfig

        homes: dict[str, type] = {"train": TrainConfig, "data": DataSettings}
        name = {"lr": "optimiser", "learning_rate": "optimiser"}.get(name, name)
    else:
        from volumetric.evolution.evolution_config import EvolutionConfig, MutationConfig, SpeciesConfig

        homes = {"": EvolutionConfig, "species": SpeciesConfig, "mutation": MutationConfig}
    home = next((home for home, of in homes.items() if name in config_tables.argument_types(of)), None)
    if home is None:
        return None
    value = "'{kind=\"adam\", lr=0.01}'" if name == "optimiser" else "VALUE"
    return f"override a key of the file with --set {home + '.' if home else ''}{name}={value}"


def _usage_hint(verb: str) -> str:
    from volumetric.cli import COMMANDS

    return f"see: volumetric {verb} --help" if verb in COMMANDS else "see: volumetric --help"


def _unknown_option(error: cyclopts.UnknownOptionError, verb: str) -> tuple[str, str]:
    """Return message and hint for an unknown flag; only a nearly equal name is suggested."""
    name = (error.token.keyword or error.token.value).partition("=")[0]
    known = [own for argument in error.argument_collection if argument.parse for own in argument.names]
    return f"unknown flag {name} of {verb}", _set(verb, name) or f"{_suggestions(name, known)}{_usage_hint(verb)}"


def _set(verb: str, name: str) -> str | None:
    """Return the hint for a flag that is a key of the command's file; None if it is not one."""
    if verb == "train":
        from volumetric.train.settings import place_of
    elif verb == "evolve":
        from volumetric.evolution.evolution_job import place_of
    else:
        return None
    place = place_of(name.lstrip("-").replace("-", "_"))
    return place and f"it is a key of the file: use --set {place}=…"


def _unknown_command(error: cyclopts.UnknownCommandError) -> tuple[str, str]:
    from volumetric.cli import COMMANDS
    from volumetric.cli.foreign_flags import FOREIGN_COMMANDS as OTHERS

    name = next(iter(error.unused_tokens or ()), "")
    return f"unknown command {name!r}", OTHERS.get(name) or f"{_suggestions(name, COMMANDS)}see: volumetric --help"


def _suggestions(name: str, known: Iterable[str]) -> str:
    import difflib  # imported only for errors

    close = difflib.get_close_matches(name, list(known), 1, _NEARLY)
    return f"did you mean {close[0]}? " if close else ""


def _too_many(error: cyclopts.UnusedCliTokensError, verb: str) -> tuple[str, str]:
    names = " ".join(error.unused_tokens or ())
    text = "run processes streams of rows; for text use volumetric generate MODEL PROMPT, or chat MODEL. "
    return f"unexpected argument of {verb}: {names!r}", f"{text if verb == 'run' else ''}{_usage_hint(verb)}"


def explain_error(error: VolumetricError, verb: str) -> int:
    """Write an error of the library with flags in place of Python arguments; return `FAILED`."""
    return explain(FAILED, as_flags(str(error), verb), error.hint and as_flags(error.hint, verb))


def explain(code: int, message: str, hint: str | None) -> int:
    """Write an error and its hint to stderr; return `code`."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code
