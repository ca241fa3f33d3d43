"""The form of calls: what a model writes around the name and the arguments of a function."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from volumetric.generate.grammar import spaced
from volumetric.serve.tools.asked import AskedTools, Tool


@dataclass(frozen=True, slots=True)
class CallForm:
    """Texts of a call, in their order: trigger, opening, the name, between, the arguments as JSON, closing.

    Attributes
    ----------
    trigger : text with which a call begins, and nothing else does
    first, joint, last : where one trigger begins all calls, what is before, between and behind them; without a joint
        each call has a trigger of its own
    marks : those of the texts that are special tokens, by their ids
    id_length : length of ids of calls, of letters and digits alone; None: as OpenAI's look
    """

    trigger: str
    opening: str
    between: str
    closing: str
    first: str = ""
    joint: str = ""
    last: str = ""
    marks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    id_length: int | None = None

    def new_id(self) -> str:
        """Return the id of a new call."""
        made = uuid.uuid4().hex
        return f"call_{made[:24]}" if self.id_length is None else made[: self.id_length]

    def grammar(self, asked: AskedTools) -> str:
        """Return what the answer may be, in llguidance's Lark: text and calls, or calls alone if they are required."""
        if self.marks:
            return self._marked(asked)
        names = [f"call_{i}" for i in range(len(asked.tools))]
        rules = [line for name, tool in zip(names, asked.tools, strict=True) for line in self._rules(name, tool, asked)]
        call = f"({' | '.join(names)})"
        if asked.required:
            start = f'{call} ("\\n" {call})*' if asked.parallel else call
        else:
            start = f"{call}* TEXT" if asked.parallel else f"{call} | TEXT"
        return "\n".join(["%llguidance {}", f"start: {start}", *rules, r"TEXT: /(.|\n)*/"])

    def _marked(self, asked: AskedTools) -> str:
        """Return the grammar of calls that begin with a special token, which ends a text by itself."""
        names = [f"call_{i}" for i in range(len(asked.tools))]
        rules = [
            f"{name}: {self._texts(self.opening, tool.name, self.between)} "
            f"%json {json.dumps(spaced(tool.parameters))} {self._texts(self.closing)}"
            for name, tool in zip(names, asked.tools, strict=True)
        ]
        call = f"({' | '.join(names)})"
        more = f"({self._texts(self.joint or self.trigger)} {call})*" if asked.parallel else ""
        calls = f"{self._texts(self.trigger, self.first)} {call} {more} {self._texts(self.last)}"
        start = calls if asked.required else f"TEXT ({calls})?"
        return "\n".join(["%llguidance {}", f"start: {start}", *rules, r"TEXT: /(.|\n)*/"])

    def _texts(self, *texts: str) -> str:
        """Return texts in Lark, special tokens by their ids."""
        return " ".join(f"<[{self.marks[text]}]>" if text in self.marks else json.dumps(text) for text in texts if text)

    def _rules(self, name: str, tool: Tool, asked: AskedTools) -> Sequence[str]:
        head = json.dumps(self.opening + tool.name + self.between)
        body = f"{head} %json {json.dumps(spaced(tool.parameters))} {json.dumps(self.closing)}"
        trigger = json.dumps(self.trigger)
        if asked.required:
            return [f"{name}: {trigger} {body}"]
        return [f"{name}_trigger[lazy]: TEXT {trigger}", f"{name}: {name}_trigger {body}"]


HERMES: Final = CallForm("<tool_call>", '\n{"name": "', '", "arguments": ', "}\n</tool_call>")
"""Of Hermes, Qwen and others; also of models that were told of it in their instructions alone."""
LLAMA: Final = CallForm('{"name": "', "", '", "parameters": ', "}")
"""Of Llama 3.1 and later."""


def form_of(template: str, token_id: Callable[[str], int | None] = lambda _: None) -> tuple[CallForm, bool]:
    """Return the form that a chat template teaches, and whether it tells of tools by itself.

    Parameters
    ----------
    token_id : gives the ids of special tokens
    """
    trigger, between = token_id(CALLS), token_id(ARGUMENTS)
    if CALLS in template and trigger is not None:
        if ARGUMENTS in template and between is not None:
            return mistral(trigger, between), True
        return mistral_list(trigger), True
    if "tools" in template and "<tool_call>" in template:
        return HERMES, True
    if ("tools" in template and "<|python_tag|>" in template) or ('"parameters"' in template and "tools" in template):
        return LLAMA, True
    return HERMES, False


CALLS, ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
_MISTRAL_IDS: Final = 9
"""Mistral's templates refuse ids of any other length."""


def mistral_list(trigger: int) -> CallForm:
    """Return the form of Mistral 7B v0.3, Nemo and others of that time: one list of all calls."""
    return CallForm(
        CALLS,
        '{"name": "',
        '", "arguments": ',
        "}",
        first="[",
        joint=", ",
        last="]",
        marks={CALLS: trigger},
        id_length=_MISTRAL_IDS,
    )


def mistral(trigger: int, between: int) -> CallForm:
    """Return the form of Mistral's models from Small 3.2 on."""
    return CallForm(CALLS, "", ARGUMENTS, "", marks={CALLS: trigger, ARGUMENTS: between}, id_length=_MISTRAL_IDS)


def instructions(asked: AskedTools) -> str:
    """Return what a model is told of tools whose template does not tell of them."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in asked.told)
    how = f'{HERMES.trigger}{HERMES.opening}NAME{HERMES.between}{{"ARGUMENT": "VALUE"}}{HERMES.closing}'
    return f"You can call these functions:\n{listed}\n\nTo call one, write nothing but\n{how}"
