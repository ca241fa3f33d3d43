"""A mistake of a beginner, and the words that its answer must contain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

Kind = Literal["train", "evolve", "python", "command"]


@dataclass(frozen=True, slots=True)
class Mistake:
    """What somebody writes, and what the answer must say.

    Attributes
    ----------
    kind : ``"train"`` and ``"evolve"``: `text` is a TOML file for that command; ``"python"``: code; ``"command"``:
        arguments of ``volumetric``
    name : what is wrong, in a few words
    text : the file, the code, or the arguments
    answer : ``"place | cause | way out"``: where it is wrong (a key, file, line, coordinate or argument) and what is
        wrong there, two parts of the message; and what to write or do, a part of the hint, or of a warning
    warns : the run goes on, with a warning in place of an error
    started : the run had begun, so that its directory stays
    slow : takes more than about a fifth of a second
    """

    kind: Kind
    name: str
    text: str
    answer: str
    warns: bool = False
    started: bool = False
    slow: bool = False


in_train_file: Final = partial(Mistake, "train")
in_evolve_file: Final = partial(Mistake, "evolve")
in_python: Final = partial(Mistake, "python")
on_command_line: Final = partial(Mistake, "command")
