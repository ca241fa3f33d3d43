"""Chat history: the messages of a conversation, local or with a server, and files to save them."""

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
class ChatHistory(ABC):
    """Messages and settings of a conversation.

    Attributes
    ----------
    settings : sampling parameters that were set, by flags or by ``/set``
    file : the last file that messages were saved to or loaded from
    """

    settings: dict[str, Any]
    messages: Messages = field(default_factory=list)
    file: Path | None = None

    @abstractmethod
    def _reply(self, messages: Messages) -> None:
        """Print the reply to `messages`, and store both."""

    @abstractmethod
    def check(self, settings: dict[str, Any]) -> str:
        """Return the sampling parameters with `settings`, line by line. Raises `SpecError` for an invalid one."""

    @abstractmethod
    def begin_anew(self) -> None:
        """Clear the computed state, if there is any."""

    def answer(self, text: str) -> None:
        """Add the message `text` and print the reply; the text of an interrupted reply stays in the conversation.

        Raises
        ------
        GenerationError : the message alone does not fit into the context; the conversation is unchanged
        """
        self._reply([*self.messages, {"role": "user", "content": text}])

    def regenerate(self) -> None:
        """Replace the last reply by another one, and print it.

        Raises
        ------
        GenerationError : there is no message yet
        """
        messages = list(self.messages)
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
        if not messages or messages[-1]["role"] != "user":
            raise GenerationError("there is no message to answer", hint="type a message first")
        self._reply(messages)

    def _keep(self, messages: Messages, reply: str, *, begun: bool) -> None:
        """Store a reply, which may be incomplete."""
        console.write("\n")
        if begun:
            self.messages = [*messages, {"role": "assistant", "content": reply}]
        else:
            console.note("stopped before the first word; the conversation is unchanged")

    def reset(self) -> None:
        """Drop all messages but the system message."""
        self.messages = [message for message in self.messages if message["role"] == "system"]
        self.begin_anew()

    def system(self, text: str) -> None:
        """Start again with another system message."""
        self.messages = [{"role": "system", "content": text}] if text else []
        self.begin_anew()

    def change(self, name: str, value: str) -> None:
        """Change one sampling parameter; the old value stays if the new one is refused."""
        plain = name.replace("-", "_")
        changed = self.settings | {ALIASES.get(plain, plain): _value(value)}
        self.check(changed)
        self.settings = changed

    def save(self, name: str) -> None:
        """Write the messages as JSON, in the format that `load` and other programs read.

        Raises
        ------
        GenerationError : another file has this name
        CheckpointError : it cannot be written
        """
        path = _file(name)
        if path.exists() and path != self.file:
            raise GenerationError(f"{path} exists and is not overwritten", hint="choose another name")
        write_atomic(path, (json.dumps(self.messages, ensure_ascii=False, indent=1) + "\n").encode())
        self.file = path
        console.note(f"{len(self.messages)} messages in {path}")

    def load(self, name: str) -> None:
        """Continue with the messages of a file.

        Raises
        ------
        GenerationError : it cannot be read, or does not contain messages; the conversation is unchanged
        """
        path = _file(name)
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise GenerationError(f"{path}: {error.strerror}", hint="/save FILE writes one") from error
        except (ValueError, RecursionError) as error:
            raise GenerationError(f"{path} is not JSON: {error}", hint="/save FILE writes one") from error
        if not isinstance(read, list) or not all(map(_is_message, read)):
            raise GenerationError(
                f"{path} does not contain a conversation", hint='expected a list of {"role": "user", "content": "…"}'
            )
        self.messages, self.file = read, path
        self.begin_anew()
        console.note(f"{len(read)} messages from {path}")


def _file(name: str) -> Path:
    """Return the path of a file that the user named. Raises `GenerationError` for an invalid name."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise GenerationError(f"{name[:80]!r} is not a valid file name: {error}", hint="choose another name") from error
    if "\0" in name:
        raise GenerationError("a file name cannot contain a null byte", hint="choose another name")
    return path


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"role", "content"}:
        return False
    return all(isinstance(text, str) for text in value.values())


def _value(text: str) -> Any:
    """Parse a number, a list or true as JSON; anything else is text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return unescape(text)
