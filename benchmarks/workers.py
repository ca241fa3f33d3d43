"""Programs of other interpreters: run once for an answer, or kept and asked again and again, in lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from volumetric.base.errors import DeviceError

HERE = Path(__file__).parent


def run_once(
    python: str | Path, script: str | Path, *arguments: str, name: str = "", missing: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Run a script and return the last line that it writes.

    Parameters
    ----------
    python, script, environment : as of `Worker`
    name : what it runs, in messages; the script's name unless given
    missing : what to do where it fails

    Raises
    ------
    DeviceError : the interpreter is not there, or the script failed; the message ends with its last line on stderr
    """
    command = [str(python), str(HERE / script), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_variables(python, environment))
    except OSError as error:
        raise DeviceError(f"cannot start {command[0]}: {error.strerror}", hint="name a Python interpreter") from None
    if done.returncode:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise DeviceError(f"{name or Path(script).name}: {last}", hint=missing or f"{python} ran it")
    return done.stdout.splitlines()[-1] if done.stdout else ""


class Worker:
    """A script of another interpreter that answers each line of JSON with one.

    Parameters
    ----------
    python : the interpreter
    script : relative to the folder of this file
    name : what it runs, in messages
    missing : what to do where it answers ``{"error": …}``
    environment : variables besides those of this process

    Raises
    ------
    DeviceError : the interpreter is not there
    """

    def __init__(
        self, python: str | Path, script: str | Path, *arguments: str, name: str, missing: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._name, self._missing = name, missing or f"{python} runs it"
        command: Sequence[str] = [str(python), str(HERE / script), *arguments]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_variables(python, environment)
            )
        except OSError as error:
            raise DeviceError(
                f"cannot start {command[0]}: {error.strerror}", hint="name a Python interpreter"
            ) from None

    def ask(self, request: Any) -> Any:
        """Send a request and return its answer. Raises `DeviceError`: the process ended, or answered an error."""
        assert self._process.stdin is not None  # it was asked for
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise DeviceError(f"the {self._name} process ended") from None
        return self.answer()

    def answer(self) -> Any:
        """Return the next answer; lines that are no JSON are what some library prints. Raises `DeviceError`."""
        assert self._process.stdout is not None  # it was asked for
        for line in self._process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if isinstance(answer, dict) and "error" in answer:
                raise DeviceError(f"{self._name}: {answer['error']}", hint=self._missing)
            return answer
        raise DeviceError(f"the {self._name} process ended", hint="its own message is above")

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _variables(python: str | Path, environment: Mapping[str, str] | None) -> dict[str, str]:
    """Return variables for a process: this interpreter finds there what it finds here."""
    variables = {**os.environ, **(environment or {})}
    if str(python) == sys.executable:
        paths = str(HERE.parent), os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return variables
