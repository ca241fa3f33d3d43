"""A conversation: its messages, how answers are drawn, and what is forgotten when the context is full."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volumetric.atomic import write_atomic
from volumetric.cli import console
from volumetric.cli.generate import summary
from volumetric.cli.interrupts import end_on_interrupt
from volumetric.cli.prompting import unescape
from volumetric.errors import GenerationError
from volumetric.generate.params import ALIASES

if TYPE_CHECKING:
    from volumetric.generate import Generation, Model, Session

Messages = list[dict[str, str]]


@dataclass
class Conversation:
    """Messages, settings and the session that holds their tokens.

    Attributes
    ----------
    settings : sampling parameters that were given, by flags or by ``/set``
    template : keywords of `Session.stream` that concern the chat template
    file : where the messages were saved to or loaded from last
    """

    model: Model
    session: Session
    settings: dict[str, Any]
    template: dict[str, Any]
    messages: Messages = field(default_factory=list)
    file: Path | None = None

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
        asked = list(self.messages)
        while asked and asked[-1]["role"] == "assistant":
            asked.pop()
        if not asked or asked[-1]["role"] != "user":
            raise GenerationError("there is no message to answer again", hint="say something first")
        if self.model.merged(**self.settings).params.temperature == 0.0:
            console.note("temperature 0 takes the most likely words again; to draw others: /set temperature 0.8")
        self._reply(asked)

    def _reply(self, asked: Messages) -> None:
        asked = self._fitted(asked)
        with closing(self.session.stream(asked, **self.settings, **self.template)) as stream, end_on_interrupt(stream):
            try:
                for event in stream:
                    console.write(event.text)
            except KeyboardInterrupt:
                stream.close()
            generation = stream.generation
            console.write("\n")
            if generation.token_ids:
                self.messages = [*asked, {"role": "assistant", "content": generation.text}]
        if not generation.token_ids:
            console.note("stopped before the first word; the conversation is as before")
            return
        self._tell(generation)

    def _tell(self, generation: Generation) -> None:
        console.note(summary(generation.stats, generation.seed))
        stats, context = generation.stats, self.model.info.context
        if generation.finish_reason != "length":
            return
        if stats.prompt_tokens + stats.generated_tokens > context:
            console.note(f"the answer ends where the context of {context} tokens does; {self._more_room()}")
        else:
            console.note(f"the answer was cut after {stats.generated_tokens} tokens; longer ones: /set max_tokens 1000")

    def _fitted(self, asked: Messages) -> Messages:
        """Return `asked` without its oldest turns, where the context has no room for all of them and an answer.

        The system message stays. As llama.cpp does, half of the context is freed at once: what is left has other
        positions, so that its tokens are computed anew, which not every message shall cost.
        """
        context = self.model.info.context
        reserve = min(self.model.merged(**self.settings).params.max_tokens, context // 4)
        if self._length(asked) + reserve <= context:
            return asked
        first = 1 if asked[0]["role"] == "system" else 0
        kept = asked
        while self._length(kept) > context // 2:
            users = [i for i, message in enumerate(kept) if message["role"] == "user" and i > first]
            if not users:
                break
            kept = kept[:first] + kept[users[0] :]
        gone = len(asked) - len(kept)
        if gone and self._length(kept) <= context:
            what = "oldest message is" if gone == 1 else f"{gone} oldest messages are"
            console.note(f"the context of {context} tokens is full: the {what} forgotten; {self._more_room()}")
        return kept

    def _length(self, messages: Messages) -> int:
        return len(self.model.encode(messages, **self.template))

    def _more_room(self) -> str:
        context, limit = self.model.info.context, self.model.info.context_length
        more = f"; volumetric chat --context N holds more, up to {limit}" if limit > context else ""
        return f"/reset begins anew{more}"

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = [message for message in self.messages if message["role"] == "system"]
        self.session.reset()

    def system(self, text: str) -> None:
        """Begin anew with another system message."""
        self.messages = [{"role": "system", "content": text}] if text else []
        self.session.reset()

    def change(self, name: str, value: str) -> None:
        """Change one sampling parameter; the old value stays where the new one is refused."""
        plain = name.replace("-", "_")
        changed = self.settings | {ALIASES.get(plain, plain): _value(value)}
        self.model.merged(**changed)
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
        self.session.reset()
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
    return isinstance(value, dict) and value.keys() == {"role", "content"} and all(map(_is_text, value.values()))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _value(text: str) -> Any:
    """Read a number, a list or true as JSON has them; anything else is text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return unescape(text)
