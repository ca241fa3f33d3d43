"""The history of a sculpted stream: what was done at which tick, as a list, as JSON and as a Python script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from volumetric.base.errors import CheckpointError
from volumetric.scope.sculpting.network_changes import Changes

FORMAT: Final = "volumetric.sculpting"
VERSION: Final = 1
MOST_STEPS: Final = 10_000
"""Maximum number of steps of a history."""
MOST_SAVED: Final = 1 << 28
"""Maximum bytes of all states that undoing needs; the oldest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call of a method of `SculptedStream`, and how many ticks the stream had run before it."""

    after: int
    act: str
    arguments: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Entry:
    """An act in the list for undoing.

    Attributes
    ----------
    text : such as ``"mask population core (36 nodes) at tick 120"``
    before : changes before it
    states : states of the stream before it, if it changed states only
    position : tick of the rows before it
    """

    act: str
    arguments: Mapping[str, Any]
    text: str
    before: Changes
    states: bytes | None = None
    position: int = 0
    dropped: bool = False


@dataclass(slots=True)
class History:
    """Acts in order, those undone, and each step that a replay repeats."""

    done: list[Entry] = field(default_factory=list[Entry])
    undone: list[Entry] = field(default_factory=list[Entry])
    steps: list[Step] = field(default_factory=list[Step])

    def add(self, entry: Entry) -> None:
        """Add an act; saved states beyond `MOST_SAVED` are dropped, oldest first."""
        self.done.append(entry)
        size = sum(len(one.states) for one in self.done if one.states is not None)
        for one in self.done[:-1]:
            if size > MOST_SAVED and one.states is not None:
                size -= len(one.states)
                one.states, one.dropped = None, True

    def describe(self) -> dict[str, Any]:
        """Return the texts of acts that can be undone and redone, as JSON data."""
        return {"done": [one.text for one in self.done], "undone": [one.text for one in reversed(self.undone)]}


def history_json(steps: list[Step], ticks: int, network: str) -> str:
    """Return steps as JSON text for `read_history`.

    Parameters
    ----------
    ticks : number of ticks that the stream has run
    network : SHA-256 of the network's JSON text
    """
    listed = [{"after": step.after, "act": step.act, "arguments": dict(step.arguments)} for step in steps]
    content = {"format": FORMAT, "version": VERSION, "network": network, "ticks": ticks, "steps": listed}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def read_history(source: str | bytes | Path) -> tuple[list[Step], int, str]:
    """Return steps, the number of ticks and the network's SHA-256 from JSON text or a file.

    Raises
    ------
    CheckpointError : the file cannot be read, or is no history
    """
    try:
        content = json.loads(source.read_bytes() if isinstance(source, Path) else source)
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise CheckpointError(f"a history of acts must be {FORMAT!r}, version {VERSION}")
        steps = [
            Step(after=int(one["after"]), act=str(one["act"]), arguments=dict(one["arguments"]))
            for one in content["steps"]
        ]
        ticks = int(content["ticks"])
        if sorted(step.after for step in steps) != [step.after for step in steps] or any(
            s.after > ticks for s in steps
        ):
            raise CheckpointError("the steps of a history must be in the order of their ticks")
        return steps, ticks, str(content["network"])
    except OSError as error:
        raise CheckpointError(f"cannot read the history: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"this is not a history of acts: {error}", hint="pass what SculptedStream.to_json returned"
        ) from None


def history_script(steps: list[Step], ticks: int) -> str:
    """Return a Python script that repeats steps on a stream at the same ticks."""
    lines = [
        '"""Repeats what was done to a stream, at the same ticks. `rows` are those of the stream that was sculpted."""',
        "",
        "from volumetric.scope.sculpting import SculptedStream",
        "",
        "",
        "def replay(stream, rows=None):",
        '    """Return the sculpted stream, and its outputs by name."""',
        "    sculpted = SculptedStream(stream, rows)",
        "    outputs = []",
    ]
    at = 0
    for step in steps:
        if step.after > at:
            lines.append(f"    outputs.append(sculpted.advance({step.after - at}))")
            at = step.after
        lines.append(f"    sculpted.{step.act}({', '.join(f'{k}={v!r}' for k, v in step.arguments.items())})")
    if ticks > at:
        lines.append(f"    outputs.append(sculpted.advance({ticks - at}))")
    return "\n".join([*lines, "    return sculpted, outputs", ""])
