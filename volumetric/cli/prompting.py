"""Flags of the prompt, or of a message for the chat template."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from volumetric.cli import console
from volumetric.cli.exits import UsageError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    r"""Source of the prompt.

    Parameters
    ----------
    prompt : str
        The prompt; - reads it from stdin, without a final line break.
    file : path
        Read the prompt from a text file, without a final line break.
    prompt_ids : tuple of int
        The prompt as token ids, for models without a tokenizer; separated by commas or spaces.
    escape : bool
        Interpret \n, \t, \r and escaped quotes and backslashes in a prompt on the command line as in C.
    """

    prompt: Annotated[str | None, Parameter(name=["--prompt", "-p"], allow_leading_hyphen=True)] = None
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None
    prompt_ids: str | None = None
    escape: Annotated[bool, Parameter(name=["--escape", "-e"], show_default=False)] = False

    def read(self, text: str | None = None) -> str | list[int]:
        """Return the prompt.

        Parameters
        ----------
        text : the prompt as a positional argument

        Raises
        ------
        UsageError : there is no prompt or more than one, or ids are not whole numbers
        """
        named = {"PROMPT": text, "--prompt": self.prompt, "--file": self.file, "--prompt-ids": self.prompt_ids}
        sources = [name for name, value in named.items() if value is not None]
        if len(sources) != 1:
            raise UsageError(
                f"{' and '.join(sources)} exclude each other" if sources else "no prompt",
                hint="give one of: PROMPT after the model, --prompt TEXT, --prompt - for stdin, --file PATH, "
                "--prompt-ids 1,2,3",
            )
        if self.file is not None:
            return self.file.read_text(encoding="utf-8").removesuffix("\n")
        if self.prompt_ids is not None:
            return whole_numbers("--prompt-ids", self.prompt_ids)
        typed = text if self.prompt is None else self.prompt
        if typed == "-":
            return console.read_all().removesuffix("\n")
        return unescape(typed or "") if self.escape else typed or ""


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


def unescape(text: str) -> str:
    r"""Replace ``\n``, ``\t``, ``\r``, ``\"``, ``\'`` and ``\\``; a backslash before anything else stays."""
    return re.sub(r"""\\([ntr\\"'])""", lambda match: _ESCAPES[match[1]], text)


def whole_numbers(flag: str, text: str) -> list[int]:
    """Return the numbers of `text`, separated by commas or spaces.

    Raises
    ------
    UsageError : it contains anything else
    """
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"{flag} must be whole numbers, got {text!r}") from None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """The chat template, and its arguments.

    Parameters
    ----------
    system : str
        System message before the conversation.
    chat_template : str
        Jinja template, or a file with it, in place of the model's template.
    template_args : str
        JSON object of further arguments for the template.
    parse_special : bool
        Parse control tokens in messages as such, not as text.
    """

    system: Annotated[
        str | None, Parameter(name=["--system", "--system-prompt", "-sys"], allow_leading_hyphen=True)
    ] = None
    chat_template: str | None = None
    template_args: Annotated[str | None, Parameter(name=["--template-args", "--chat-template-kwargs"])] = None
    parse_special: Annotated[bool, Parameter(negative="", show_default=False)] = False

    @property
    def is_set(self) -> bool:
        """Whether any of the flags is set."""
        return self.parse_special or (self.system, self.chat_template, self.template_args) != (None, None, None)

    def opening(self) -> list[dict[str, str]]:
        """Messages at the start of every conversation."""
        return [] if self.system is None else [{"role": "system", "content": self.system}]

    def arguments(self) -> dict[str, Any]:
        """Arguments of `Session.stream` for the template."""
        keywords: dict[str, Any] = {"parse_special": True} if self.parse_special else {}
        return (
            keywords if self.template_args is None else keywords | {"template_args": _json_object(self.template_args)}
        )


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"--template-args is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"--template-args must be a JSON object, got {text!r}")
    return value
