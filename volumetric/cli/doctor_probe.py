"""What probes of ``volumetric doctor`` return, and how one that fails becomes a line of the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Severity = Literal["broken", "slow", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person can act on.

    Attributes
    ----------
    severity : broken: the engine does not work; slow: it could be faster; note: good to know
    what : the observation
    advice : what to do
    """

    severity: Severity
    what: str
    advice: str


@dataclass(slots=True)
class Section:
    """A part of the report.

    Attributes
    ----------
    facts : label → value
    findings : what follows from them
    """

    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def find(self, severity: Severity, what: str, advice: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(severity, what, advice))


def run_probe(section: Section, label: str, probe: Callable[[Section], None]) -> None:
    """Let a probe fill a section. Any failure of it is a fact of the section, under `label`."""
    try:
        probe(section)
    except Exception as error:
        section.facts[label] = f"could not be read: {type(error).__name__}: {error}"


def run_python(arguments: Sequence[str], seconds: float, *, unset: Sequence[str] = ()) -> Any:
    """Run Python with `arguments` in a process of its own, and return the JSON that it prints.

    A driver or a compiled kernel that crashes or hangs ends that process alone.

    Parameters
    ----------
    seconds : the process is ended after this time
    unset : environment variables that it does not get

    Raises
    ------
    RuntimeError : it failed, took too long, or printed something else; the message has the last line of its errors
    """
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name not in unset},
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer within {seconds:.0f} s") from None
    lines = done.stderr.strip().splitlines()
    last = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "")
    if done.returncode < 0:
        raise RuntimeError(f"the process was ended by signal {-done.returncode} {last}".strip())
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(last or f"the process ended with status {done.returncode} and no answer") from None


def without_home(value: Any) -> Any:
    """Return `value` with the home directory written as ~, in all its texts."""
    if isinstance(value, str):
        try:
            home = str(Path.home())
        except RuntimeError:
            return value
        return value.replace(home, "~") if len(home) > 1 else value
    if isinstance(value, Mapping):
        return {without_home(key): without_home(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_home(each) for each in value]
    return value


def size_text(count: float) -> str:
    """Return bytes as text: ``"1.5 GiB"``."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
