"""A talk: the messages of a conversation, wherever its answers come from, and the files that keep them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import GenerationError
from volumetric.cli import console
from volumetric.cli.prompting import unescape
from volumetric.generate.params import ALIASES

Messages = list[dict[str, str]]


@dataclass(kw_only=True)
class Talk(ABC):
    """Messages and settings.

    Attributes
    ----------
    settings : sampling parameters that were given, by flags or by ``/set``
    file : where the messages were saved to or loaded from last
    """

    settings: dict[str, Any]
    messages: Messages = field(default_factory=list)
    file: Path | None = None

    @abstractmethod
    def _reply(self, messages: Messages) -> None:
        """Print the reply to `messages`, and go on with both."""

    @abstractmethod
    def check(self, settings: dict[str, Any]) -> str:
        """Return what `settings` come to, line by line; raises `SpecError` for one that cannot be."""

    @abstractmethod
    def begin_anew(self) -> None:
        """Forget what was computed, if anything is kept."""

    def answer(self, text: str) -> None:
        """Say `text` and print the reply; an interrupted reply stays in the conversation as far as it came.

        Raises
        ------
        GenerationError : the message does not fit into the context by itself; the conversation is as before
        """
        self._reply([*self.messages, {"role": "user", "content": text}])

    def regenerate(self) -> None:
        """Print another reply to the last message, in place of the one that was given.

        Raises
        ------
        GenerationError : nothing was said yet
        """
        messages = list(self.messages)
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
        if not messages or messages[-1]["role"] != "user":
            raise GenerationError("there is no message to answer again", hint="say something first")
        self._reply(messages)

    def _keep(self, messages: Messages, reply: str, *, begun: bool) -> None:
        """Go on with a reply as far as it came."""
        console.write("\n")
        if begun:
            self.messages = [*messages, {"role": "assistant", "content": reply}]
        else:
            console.note("stopped before the first word; the conversation is as before")

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = [message for message in self.messages if message["role"] == "system"]
        self.begin_anew()

    def system(self, text: str) -> None:
        """Begin anew with another system message."""
        self.messages = [{"role": "system", "content": text}] if text else []
        self.begin_anew()

    def change(self, name: str, value: str) -> None:
        """Change one sampling parameter; the old value stays where the new one is refused."""
        plain = name.replace("-", "_")
        changed = self.settings | {ALIASES.get(plain, plain): _value(value)}
        self.check(changed)
        self.settings = changed

    def save(self, name: str) -> None:
        """Write the messages as JSON, as `load` and other programs read them.

        Raises
        ------
        GenerationError : another file of this name is there
        CheckpointError : it cannot be written
        """
        path = _file(name)
        if path.exists() and path != self.file:
            raise GenerationError(f"{path} exists and is not overwritten", hint="choose another name")
        write_atomic(path, (json.dumps(self.messages, ensure_ascii=False, indent=1) + "\n").encode())
        self.file = path
        console.note(f"{len(self.messages)} messages in {path}")

    def load(self, name: str) -> None:
        """Go on with the messages of a file.

        Raises
        ------
        GenerationError : it cannot be read, or holds no messages; the conversation is as before
        """
        path = _file(name)
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise GenerationError(f"{path}: {error.strerror}", hint="/save FILE writes one") from error
        except (ValueError, RecursionError) as error:
            raise GenerationError(f"{path}: not JSON: {error}", hint="/save FILE writes one") from error
        if not isinstance(read, list) or not all(map(_is_message, read)):
            raise GenerationError(
                f"{path} holds no conversation", hint='it is a list of {"role": "user", "content": "…"}'
            )
        self.messages, self.file = read, path
        self.begin_anew()
        console.note(f"{len(read)} messages from {path}")


def _file(name: str) -> Path:
    """Path of a file that a person named; raises `GenerationError` where no file can be called so."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise GenerationError(f"{name[:80]!r} cannot be a file: {error}", hint="choose another name") from error
    if "\0" in name:
        raise GenerationError("a file's name cannot hold a null byte", hint="choose another name")
    return path


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"role", "content"}:
        return False
    return all(isinstance(text, str) for text in value.values())


def _value(text: str) -> Any:
    """Read a number, a list or true as JSON has them; anything else is text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return unescape(text)
