"""Flags of other programs: they are translated, accepted with a note, or refused with a hint.

Without this a flag of several letters after one dash, such as ``-fa``, would be parsed as the bundle ``-f a``. No
bundles are allowed: a flag that is neither ours nor in the table is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.cli.foreign_flags import FLAGS, Flag

if TYPE_CHECKING:
    from cyclopts import App, Argument

_SWITCH: Final = frozenset({"on", "off", "auto", "true", "false", "enabled", "disabled", "0", "1"})
_BUNDLE: Final = re.compile(r"-[A-Za-z]{2}[\w-]*")
"""Several letters after one dash; but not ``-n128``, a flag with its value."""
_NAMES: Final = frozenset(name for flag in FLAGS for name in flag.names)


def translate_flags(tokens: Sequence[str], app: App) -> list[str]:
    """Return a command line with the flags of other programs replaced by ours, or dropped with a note on stderr.

    Raises
    ------
    UsageError : a flag of another program is not supported, or letters after one dash are not a flag
    """
    if not any(_plain(token) in _NAMES or _BUNDLE.match(token) for token in tokens[1:]):
        return list(tokens)  # the common case, which needs no imports
    chain, apps, _ = app.parse_commands(tokens)
    if not chain:
        return list(tokens)
    own = {name: argument for argument in apps[-1].assemble_argument_collection() for name in argument.names}
    done, notes = _CommandLine(own, chain[0], tokens[len(chain) :]).translate()
    if notes:
        console.configure(verbose=False, quiet="--quiet" in done, debug=False)
        for note in notes:
            console.note(note)
    return [*tokens[: len(chain)], *done]


def _plain(token: str) -> str:
    """Return the name of a flag, without its value, in the spelling of the table."""
    name = token.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


class _CommandLine:
    """The arguments of a command.

    Parameters
    ----------
    own : the command's own flags
    """

    def __init__(self, own: Mapping[str, Argument], verb: str, words: Sequence[str]) -> None:
        self._own, self._verb = own, verb
        self._left = list(reversed(words))
        self._done: list[str] = []
        self._notes: list[str] = []

    def translate(self) -> tuple[list[str], list[str]]:
        """Return the translated arguments, and the notes."""
        while self._left:
            word = self._left.pop()
            if word == "--":
                self._done += [word, *reversed(self._left)]
                break
            name, equals, value = word.partition("=")
            flag = None if name in self._own else self._of_others(_plain(word))
            if flag is not None:
                self._take(flag, name, value if equals else None)
                continue
            self._done.append(word)
            if name not in self._own and _BUNDLE.fullmatch(name):
                raise self._no_flag(name)
            if not equals and self._reads_anything(name) and self._left:
                self._done.append(self._left.pop())
        return self._done, self._notes

    def _reads_anything(self, name: str) -> bool:
        """Whether the next argument is the flag's value, even if it looks like a flag."""
        argument = self._own.get(name)
        return argument is not None and bool(argument.parameter.allow_leading_hyphen) and argument.token_count()[0] > 0

    def _of_others(self, name: str) -> Flag | None:
        return next((flag for flag in FLAGS if name in flag.names and self._verb in flag.commands), None)

    def _take(self, flag: Flag, name: str, value: str | None) -> None:
        if flag.kind == "refused":
            raise UsageError(f"unknown flag {name} of {self._verb}", hint=flag.says)
        if flag.values == "switch":
            if value is None and self._left and self._left[-1].lower() in _SWITCH:
                self._left.pop()
        elif flag.values and value is None:
            if not self._left:
                raise UsageError(f"{name} requires an argument")
            value = self._left.pop()
        if flag.kind == "taken":
            self._notes.append(f"{name} has no effect: {flag.says}")
            return
        ours = flag.becomes(value or "")
        if ours[0] not in self._own:
            raise UsageError(
                f"unknown flag {name} of {self._verb}",
                hint=f"its name here is {ours[0]}, which {self._verb} does not have either",
            )
        if not self._is_there(ours, name):
            self._done += ours

    def _is_there(self, ours: Sequence[str], name: str) -> bool:
        """Whether these flags are already set, as by llama.cpp's separate types for keys and values."""
        if ours[0] not in self._done or self._own[ours[0]].token_count()[1]:
            return False
        at = self._done.index(ours[0])
        if self._done[at : at + len(ours)] != list(ours):
            raise UsageError(f"{name} contradicts {' '.join(self._done[at : at + len(ours)])}")
        return True

    def _no_flag(self, name: str) -> UsageError:
        if f"-{name}" in self._own:
            hint = f"did you mean -{name}?"
        else:
            hint = f"write each flag with its own dash, and values after a space; see: volumetric {self._verb} --help"
        return UsageError(f"unknown flag {name} of {self._verb}", hint=hint)
