"""The form of calls: what a model writes around the name and the arguments of a function."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from volumetric.generate.grammar import spaced
from volumetric.serve.tools.asked import AskedTools, Tool


@dataclass(frozen=True, slots=True)
class CallForm:
    """Texts of a call, in their order: trigger, opening, the name, between, the arguments as JSON, closing.

    Attributes
    ----------
    trigger : text with which a call begins, and nothing else does
    """

    trigger: str
    opening: str
    between: str
    closing: str

    def grammar(self, asked: AskedTools) -> str:
        """Return what the answer may be, in llguidance's Lark: text and calls, or calls alone if they are required."""
        names = [f"call_{i}" for i in range(len(asked.tools))]
        rules = [line for name, tool in zip(names, asked.tools, strict=True) for line in self._rules(name, tool, asked)]
        call = f"({' | '.join(names)})"
        if asked.required:
            start = f'{call} ("\\n" {call})*' if asked.parallel else call
        else:
            start = f"{call}* TEXT" if asked.parallel else f"{call} | TEXT"
        return "\n".join(["%llguidance {}", f"start: {start}", *rules, r"TEXT: /(.|\n)*/"])

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


def form_of(template: str) -> tuple[CallForm, bool]:
    """Return the form that a chat template teaches, and whether it tells of tools by itself."""
    if "tools" in template and "<tool_call>" in template:
        return HERMES, True
    if ("tools" in template and "<|python_tag|>" in template) or ('"parameters"' in template and "tools" in template):
        return LLAMA, True
    return HERMES, False


def instructions(asked: AskedTools) -> str:
    """Return what a model is told of tools whose template does not tell of them."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in asked.told)
    how = f'{HERMES.trigger}{HERMES.opening}NAME{HERMES.between}{{"ARGUMENT": "VALUE"}}{HERMES.closing}'
    return f"You can call these functions:\n{listed}\n\nTo call one, write nothing but\n{how}"
