"""A process that compiles operations into the cache on behalf of another process.

It is a new interpreter, not a fork: the parent may have threads and an open GPU. Requests and answers are lines of
JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import volumetric

_CODE = f"from {__name__} import main; main()"


class CompileProcess:
    """Compiles operations of the library at `home` (``module:name``), one at a time.

    If the process cannot be started, ends, or fails, operations stay uncompiled; no method raises.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        path = [str(Path(volumetric.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self._process: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError, ValueError):
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
            )

    def compile(self, key: tuple[str, tuple[str | int, ...]]) -> bool:
        """Compile an operation by name and constants; return whether it is now in the cache."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return False
        try:
            process.stdin.write(json.dumps([self._home, *key]) + "\n")
            process.stdin.flush()
            return process.stdout.readline() == "ready\n"
        except (OSError, ValueError):  # it has ended, or was closed meanwhile
            return False

    def close(self) -> None:
        """End the process; unfinished work is lost."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._process = None


def main() -> None:
    """Answer requests until the input ends; the parent handles terminal interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        home, name, constants = json.loads(line)
        module, _, attribute = home.partition(":")
        library: Any = getattr(importlib.import_module(module), attribute)
        library.address(name, *constants)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
