"""The verb ``chat``: a conversation on the terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volumetric.cli import console, exits
from volumetric.cli.generate import summary
from volumetric.cli.loading import open_for
from volumetric.cli.options import (
    DeviceOptions,
    ModelSource,
    OutputOptions,
    SizeOptions,
    SourceOptions,
)
from volumetric.cli.prompting import TemplateOptions
from volumetric.cli.sampling import SamplingOptions
from volumetric.errors import GenerationError, VolumetricError
from volumetric.generate.params import ALIASES

if TYPE_CHECKING:
    from volumetric.generate import Model, Session

HELP = """\
/help               this list
/reset              forget the conversation
/system TEXT        begin anew with this system message; without TEXT, with none
/set                show the sampling parameters
/set NAME VALUE     change one, as in: /set temperature 0.7
/quit               leave; so does the end of the input
Ctrl-C stops an answer."""


@dataclass
class Conversation:
    """Messages, settings and the session that holds their tokens."""

    model: Model
    session: Session
    settings: dict[str, Any]
    template: dict[str, Any]
    messages: list[dict[str, str]] = field(default_factory=list)

    def answer(self, text: str) -> None:
        """Say `text` and print the reply; an interrupted reply stays in the conversation as far as it came."""
        asked = [*self.messages, {"role": "user", "content": text}]
        with closing(self.session.stream(asked, **self.settings, **self.template)) as stream:
            try:
                for event in stream:
                    console.write(event.text)
            except KeyboardInterrupt:
                stream.close()
            finally:
                console.write("\n")
        generation = stream.generation
        self.messages = [*asked, {"role": "assistant", "content": generation.text}]
        console.note(summary(generation.stats, generation.seed))

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


def chat(
    model: ModelSource = None,
    *,
    template: TemplateOptions = TemplateOptions(),
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    sampling: SamplingOptions = SamplingOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Talk with a model; /help lists the commands.

    Parameters
    ----------
    model : str
        As for generate.
    """
    output.apply()
    settings = sampling.given()
    with (
        open_for(
            model, source, device, context=size.context, threads=size.threads, chat_template=template.chat_template
        ) as opened,
        opened.session() as session,
    ):
        if opened.loaded.chat_template is None:
            raise GenerationError(
                f"{opened.name} has no chat template",
                hint="generate continues a plain text; --chat-template gives a template",
            )
        console.explain_sampling(opened.merged(**settings))
        console.note(f"{opened.name} on {opened.info.device}; /help lists the commands")
        return _converse(Conversation(opened, session, settings, template.arguments(), template.opening()))


def _converse(talk: Conversation) -> int:
    while True:
        try:
            line = _read_line().strip()
        except EOFError:
            return exits.OK
        try:
            if line == "/quit":
                return exits.OK
            if line.startswith("/"):
                _command(talk, line)
            elif line:
                talk.answer(line)
        except VolumetricError as error:
            exits.explain(exits.FAILED, str(error), error.hint)


def _command(talk: Conversation, line: str) -> None:
    verb, _, rest = line.partition(" ")
    name, _, value = rest.strip().partition(" ")
    match verb:
        case "/help":
            console.note(HELP)
        case "/reset":
            talk.reset()
        case "/system":
            talk.system(rest.strip())
        case "/set" if not name:
            console.note(str(talk.model.merged(**talk.settings)).replace(", ", "\n"))
        case "/set" if value:
            talk.change(name, value.strip())
        case _:
            exits.explain(exits.FAILED, f"unknown command {line!r}", "/help lists the commands")


def _read_line() -> str:
    """Read one line; the prompt sign never gets into a stdout that is not a terminal."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        # Importing readline gives `input` line editing and history; Windows has none.
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
        return input("> ")
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _value(text: str) -> Any:
    """Read a number, a list or true as JSON has them; anything else is text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
