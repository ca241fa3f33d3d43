"""The command ``chat``: a conversation on the terminal."""

from __future__ import annotations

from volumetric.base.errors import GenerationError, VolumetricError
from volumetric.cli import console, exits
from volumetric.cli.chat_history import ChatHistory
from volumetric.cli.conversation import LocalConversation
from volumetric.cli.exits import UsageError
from volumetric.cli.line_input import at_terminal, read_message
from volumetric.cli.loading import open_for, opened_draft
from volumetric.cli.options import (
    Adapters,
    DeviceOptions,
    Drafts,
    ModelSource,
    OutputOptions,
    SizeOptions,
    SourceOptions,
)
from volumetric.cli.prompting import TemplateOptions
from volumetric.cli.remote_conversation import remote
from volumetric.cli.sampling import SamplingOptions
from volumetric.cli.stdio import OutputError

HELP = '''\
/help               this list
/regen              answer the last message again
/reset              forget the conversation
/save FILE          write the conversation to a file
/load FILE          continue the conversation of a file
/system TEXT        start again with this system message; without TEXT, with none
/set                show the sampling parameters
/set NAME VALUE     change one, as in: /set temperature 0.7
/quit               exit, as does the end of the input (Ctrl-D)
Ctrl-C stops an answer.
Enclose a message of several lines in """ and """, or end its lines with a backslash.
When the context is full, the oldest messages are dropped; the system message is kept.'''


ALIASES = {"/?": "/help", "/bye": "/quit", "/clear": "/reset", "/exit": "/quit", "/regenerate": "/regen"}
"""Aliases from other programs."""


def chat(
    model: ModelSource = None,
    *,
    url: str | None = None,
    template: TemplateOptions = TemplateOptions(),
    lora: Adapters = None,
    draft: Drafts = None,
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    sampling: SamplingOptions = SamplingOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Chat with a model; /help lists the commands.

    Parameters
    ----------
    model : str
        See generate; with --url, the name of one of the server's models.
    url : str
        Chat with a server of OpenAI's API instead, such as http://127.0.0.1:8080; VOLUMETRIC_API_KEY is sent to it.
    lora : list
        Directory of a LoRA adapter saved by PEFT, PATH or PATH:SCALE; may be repeated.
    draft : str
        A smaller draft model, or lookup; see generate.
    """
    output.apply()
    settings = sampling.set_values()
    if url is not None:
        if lora or draft or template.chat_template or template.arguments():
            raise UsageError(
                "--url cannot be combined with a template, adapters or a draft", hint="the server has its own"
            )
        return _converse(remote(url, model, settings, template.opening()))
    with (
        open_for(
            model,
            source,
            device,
            context=size.context,
            threads=size.threads,
            chat_template=template.chat_template,
            lora=lora or (),
        ) as opened,
        opened.session() as session,
        opened_draft(draft, opened, source, device) as guesses,
    ):
        if opened.loaded.chat_template is None:
            raise GenerationError(
                f"{opened.name} has no chat template",
                hint="generate continues a plain text; --chat-template sets a template",
            )
        console.explain_sampling(opened.merged(**settings))
        console.note(f"{opened.name} on {opened.info.device}; /help lists the commands")
        arguments, opening = template.arguments(), template.opening()
        talk = LocalConversation(opened, session, arguments, settings=settings, messages=opening, draft=guesses)
        return _converse(talk)


def _converse(talk: ChatHistory) -> int:
    left_open = False  # first Ctrl-C at the prompt: the next one exits
    while True:
        try:
            line = read_message()
            left_open = False
            if ALIASES.get(line, line) == "/quit":
                return exits.OK
            _do(talk, line)
        except EOFError:
            if at_terminal():
                console.note("")  # the shell's prompt starts on a new line
            return exits.OK
        except KeyboardInterrupt:
            if left_open or not at_terminal():
                raise
            left_open = True
            console.note("\nthe conversation is kept; Ctrl-C again, Ctrl-D or /quit exits, /save FILE saves it")


def _do(talk: ChatHistory, line: str) -> None:
    try:
        if line.startswith("/") and "\n" not in line:
            _command(talk, line)
        elif line:
            talk.answer(line)
    except OutputError:
        raise  # further output would not be seen
    except VolumetricError as error:
        exits.explain_error(error, "chat")


def _command(talk: ChatHistory, line: str) -> None:
    verb, _, rest = line.partition(" ")
    rest = rest.strip()
    name, _, value = rest.partition(" ")
    match ALIASES.get(verb, verb):
        case "/help":
            console.note(HELP)
        case "/reset":
            talk.reset()
        case "/regen":
            talk.regenerate()
        case "/save" if rest:
            talk.save(rest)
        case "/load" if rest:
            talk.load(rest)
        case "/system":
            talk.system(rest)
        case "/set" if not name:
            console.note(talk.check(talk.settings))
        case "/set" if value:
            talk.change(name, value.strip())
        case "/save" | "/load" | "/set":
            exits.explain(exits.FAILED, f"{verb} needs an argument", "see /help")
        case _:
            exits.explain(exits.FAILED, f"unknown command {line!r}", "/help lists the commands")
