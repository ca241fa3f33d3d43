"""Explains command lines that do not fit: what is wrong with them, and a line that fits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args, get_origin

import cyclopts

from volumetric.base.errors import VolumetricError

_NEARLY: Final = 0.75
"""Least similarity of a suggested name, from 0 to 1."""
_LINES: Final[Mapping[str, str]] = {
    "generate": 'volumetric generate MODEL "a prompt"',
    "chat": "volumetric chat MODEL",
    "serve": "volumetric serve MODEL --port 8080",
    "embed": 'volumetric embed MODEL "a text"',
    "run": "volumetric run MODEL --in rows.npz",
    "scope": "volumetric scope MODEL",
    "train": "volumetric train FILE.toml",
    "program": "volumetric program check x.program.json",
    "tasks": "volumetric tasks list",
    "evolve": "volumetric evolve FILE.toml, or volumetric evolve plot RUN",
    "bench": "volumetric bench MODEL",
    "perplexity": "volumetric perplexity MODEL --file text.txt",
    "compare": "volumetric compare MODEL OTHER --file text.txt",
    "inspect": "volumetric inspect MODEL",
    "devices": "volumetric devices",
    "convert": "volumetric convert SOURCE TARGET --dtype int8",
    "dna": "volumetric dna MODEL OTHER",
    "merge": "volumetric merge MODEL OTHER TARGET",
    "warmup": "volumetric warmup MODEL",
}
"""Command → a line that is complete."""
_KINDS: Final[Mapping[type, str]] = {int: "a whole number", float: "a number", bool: "true or false"}
_EXAMPLES: Final[Mapping[str, str]] = {
    "port": "8080",
    "context": "4096",
    "seed": "1",
    "ngl": "99",
    "temperature": "0.8",
}
_PLACES: Final[Mapping[str, str]] = {
    "B": "a second model",
    "WHAT": "a word that says what to do",
    "CONFIG": "the TOML file",
    "MODEL": "a model",
    "TARGET": "a target: the file or directory to write",
}
"""Argument → what it is."""
_NO_VALUE: Final = ("--resume", "--json", "--quiet")


def explain_usage(error: Exception, verb: str) -> tuple[str, str]:
    """Return message and hint for an error of the command line."""
    match error:
        case cyclopts.UnknownOptionError():
            return _unknown_option(error, verb)
        case cyclopts.UnknownCommandError():
            return _unknown_command(error)
        case cyclopts.UnusedCliTokensError():
            return _too_many(error, verb)
        case cyclopts.MissingArgumentError() if error.argument is not None:
            return _missing(error, verb)
        case cyclopts.CoercionError() if error.token is not None and error.msg is None:
            return _wrong_value(error, verb)
        case VolumetricError(hint=str() as hint):
            return str(error), hint
    return str(error), _usage_hint(verb)


def _usage_hint(verb: str) -> str:
    line = _LINES.get(verb)
    return f"write {line}; see: volumetric {verb} --help" if line else "see: volumetric --help"


def _unknown_option(error: cyclopts.UnknownOptionError, verb: str) -> tuple[str, str]:
    """Only a nearly equal name is suggested."""
    name = (error.token.keyword or error.token.value).partition("=")[0]
    known = [own for argument in error.argument_collection if argument.parse for own in argument.names]
    if name in ("-o", "--output", "--output-dir") and "--out" in known:
        return f"unknown flag {name} of {verb}", "the directory to write is --out DIRECTORY"
    return f"unknown flag {name} of {verb}", _key_of_file(verb, name) or f"{_near(name, known)}{_usage_hint(verb)}"


def _key_of_file(verb: str, name: str) -> str | None:
    """Return the hint for a flag that is a key of the command's file; None if it is not one."""
    from volumetric.base.hints import CALLED

    if verb == "train":
        from volumetric.train.settings import place_of
    elif verb == "evolve":
        from volumetric.evolution.evolution_job import place_of
    else:
        return None
    plain = name.lstrip("-").replace("-", "_")
    plain = plain if place_of(plain) else CALLED.get(plain, plain)
    if verb == "train" and plain == "lr":
        return "the rate is of the optimiser: --set 'train.optimiser={kind=\"adam\", lr=0.01}'"
    place = place_of(plain)
    return place and f"it is a key of the file: use --set {place}=…"


def _unknown_command(error: cyclopts.UnknownCommandError) -> tuple[str, str]:
    from volumetric.cli import COMMANDS
    from volumetric.cli.foreign_flags import FOREIGN_COMMANDS as OTHERS

    name = next(iter(error.unused_tokens or ()), "")
    if name.startswith("-"):
        near = _near(name, ("--help", "--version"))
        return f"unknown flag {name!r} of volumetric", f"{near}a command comes first: volumetric generate MODEL, …"
    listed = f"commands are {', '.join(COMMANDS)}"
    return f"unknown command {name!r}", OTHERS.get(name) or f"{_near(name, COMMANDS)}see: volumetric --help; {listed}"


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1, _NEARLY)
    return f"did you mean {close[0]}? " if close else ""


def _too_many(error: cyclopts.UnusedCliTokensError, verb: str) -> tuple[str, str]:
    unused = error.unused_tokens or []
    names, input_tokens = " ".join(unused), list(error.root_input_tokens or ())
    before = input_tokens[input_tokens.index(unused[0]) - 1] if unused and unused[0] in input_tokens else ""
    hint = _usage_hint(verb)
    if verb == "run":
        hint = f"run processes streams of rows; for text use volumetric generate MODEL PROMPT, or chat MODEL. {hint}"
    elif unused and unused[0].startswith("="):
        hint = f"write it without spaces: --set {before}{''.join(unused)}"
    elif before in _NO_VALUE:
        hint = f"{before} takes no value: leave out {unused[0]}"
    elif verb == "generate":
        hint = 'put the prompt in quotes: volumetric generate MODEL "two words"'
    return f"unexpected argument of {verb}: {names!r}", hint


def _missing(error: cyclopts.MissingArgumentError, verb: str) -> tuple[str, str]:
    argument = error.argument
    assert argument is not None
    positional = argument.field_info.is_positional and error.keyword is None
    name = argument.name.lstrip("-").upper() if positional else error.keyword or argument.name
    if positional:
        return f"{verb} needs {_PLACES.get(name, name)}", _usage_hint(verb)
    return f"{name} of {verb} needs a value", f"write it after the flag: {name} {_example(argument.hint, name)}"


def _wrong_value(error: cyclopts.CoercionError, verb: str) -> tuple[str, str]:
    token = error.token
    assert token is not None
    name = token.keyword or (error.argument.name.lstrip("-") if error.argument is not None else "value")
    if get_origin(error.target_type) is Literal:
        from volumetric.dtypes.type_choice import known_spelling  # imports NumPy

        choices = list(map(str, get_args(error.target_type)))
        line = f"volumetric {verb} {choices[0]} …" if not token.keyword else f"{name} {choices[0]}"
        meant = known_spelling(token.value, choices)
        near = f"did you mean {meant}? " if meant else _near(token.value, choices)
        return f"{name} of {verb}: unknown {token.value!r}", f"{near}one of {', '.join(choices)}, as {line}"
    kind = _KINDS.get(error.target_type or str, "another value")
    return (
        f"{name} of {verb} must be {kind}, got {token.value!r}",
        f"for example {name} {_example(error.target_type, name)}",
    )


def _example(kind: object, name: str) -> str:
    """Return a value that a flag may have."""
    plain = name.lstrip("-")
    numbers = {get_args(kind)[0] if get_args(kind) else kind} & {int, float}
    return _EXAMPLES.get(plain, "10" if numbers else "VALUE")
