"""The format of calls: the text around the name and the arguments of a function, and its grammar."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from volumetric.generate.grammar_source import bound_whitespace
from volumetric.serve.tools.element_arguments import ElementMarks, parameter_rules
from volumetric.serve.tools.numbered_texts import GRAMMAR, NUMBER, with_number
from volumetric.serve.tools.request_tools import RequestTools, Tool

TEXT = r"TEXT: /(.|\n)*/"


def json_rule(name: str, schema: Mapping[str, Any], *, behind: str = "") -> str:
    """Return a rule in llguidance's Lark: `behind`, also in Lark, followed by JSON that matches the schema."""
    return f"{name}: {behind} %json {json.dumps(bound_whitespace(schema))}"


@dataclass(frozen=True, slots=True)
class CallForm:
    """Texts of a call, in this order: trigger, opening, the name, between, the arguments, closing.

    Opening and between may contain a `NUMBER`, the model's count of calls.

    Attributes
    ----------
    trigger : text with which only calls begin
    first, joint, last : texts before, between and after all calls if one trigger begins them; without a joint each call
        has its own trigger
    gap : text between calls with their own triggers, if the answer contains only calls
    elements : marks of arguments that are written as elements, one for each, instead of a JSON object
    aloud : name that precedes text; empty if text has no such header
    inside : answers begin after the trigger, because the prompt ends with it
    marks : the texts that are special tokens, by id
    id_length : length of call ids of hex digits; None: ids in OpenAI's format
    ids : prefix of call ids that are built from name and number; empty: random ids
    spoken : marks around text that are not part of it
    """

    trigger: str
    opening: str
    between: str
    closing: str
    first: str = ""
    joint: str = ""
    last: str = ""
    gap: str = "\n"
    elements: ElementMarks | None = None
    aloud: str = ""
    inside: bool = False
    marks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    id_length: int | None = None
    ids: str = ""
    spoken: tuple[str, ...] = ()

    @property
    def is_json(self) -> bool:
        """Whether calls begin like JSON, so that they cannot be distinguished from an answer in JSON."""
        return self.trigger.startswith("{")

    def new_id(self, name: str = "", number: str = "") -> str:
        """Return the id of a new call; `name` and `number` are used if `ids` is set."""
        if self.ids:
            return f"{self.ids}{name}:{number}"
        digits = uuid.uuid4().hex
        return f"call_{digits[:24]}" if self.id_length is None else digits[: self.id_length]

    def write_calls(self, calls: Sequence[tuple[str, Any]], first: int = 0) -> str:
        """Return calls, pairs of name and arguments, in the model's format, numbered from `first`."""
        texts = [
            with_number(f"{self.opening}{name}{self.between}", number) + self._arguments(arguments) + self.closing
            for number, (name, arguments) in enumerate(calls, first)
        ]
        if self.joint:
            return f"{self.trigger}{self.first}{self.joint.join(texts)}{self.last}"
        return self.gap.join(self.trigger + text for text in texts)

    def _arguments(self, arguments: Any) -> str:
        if isinstance(arguments, str):
            return arguments
        return (
            json.dumps(arguments, ensure_ascii=False)
            if self.elements is None
            else self.elements.write_arguments(arguments)
        )

    def grammar(self, tools: RequestTools, schema: Mapping[str, Any] | None = None) -> str:
        """Return the grammar of the answer, in llguidance's Lark: text and calls, or only calls if they are required.

        Parameters
        ----------
        schema : JSON schema of an answer without calls; there is no text next to calls then

        Raises
        ------
        SpecError : arguments that are written as elements have a schema that cannot be enforced
        """
        names = [f"call_{i}" for i in range(len(tools.tools))]
        rules = [line for name, tool in zip(names, tools.tools, strict=True) for line in self._rules(name, tool)]
        call, trigger = f"({' | '.join(names)})", self.texts(self.trigger)
        if self.joint:
            more = f"({self.texts(self.joint)} {call})*" if tools.parallel else ""
            call = " ".join((self.texts(self.first), call, more, self.texts(self.last)))
        several = tools.parallel and not self.joint
        alone = self._calls_alone(call, several=several)
        if tools.required:
            start = alone
        elif schema is not None:
            start = f"{alone} | {self._spoken} json"
            rules.append(json_rule("json", schema))
        elif self.aloud:
            start = f"{alone} | {self._spoken} (begun {call}){'*' if several else '?'} | {self._spoken} TEXT"
        elif self.trigger in self.marks:  # TEXT cannot contain special tokens
            text = " ".join(("TEXT", *(f"({self.texts(mark)} TEXT)?" for mark in self.spoken)))
            start = f"{text} ({trigger} {call}){'*' if several else '?'}"
        else:
            start = f"(begun {call})* TEXT" if several else f"begun {call} | TEXT"
        return "\n".join(["%llguidance {}", f"start: {start}", f"begun[lazy]: TEXT {trigger}", *rules, TEXT])

    def _calls_alone(self, call: str, *, several: bool) -> str:
        """Return the grammar of an answer that contains only calls."""
        trigger = self.texts(self.trigger)
        first = call if self.inside else f"{trigger} {call}"
        return f"{first} ({self.texts(self.gap)} {trigger} {call})*" if several else first

    @property
    def _spoken(self) -> str:
        """Header before text, in Lark; empty in most formats."""
        return self.texts("" if self.inside else self.trigger, self.aloud + self.between) if self.aloud else ""

    def texts(self, *texts: str) -> str:
        """Return texts in Lark, with special tokens as ids."""
        cut = re.compile(f"({'|'.join(map(re.escape, (NUMBER, *self.marks)))})")
        parts = [part for text in texts for part in cut.split(text) if part]
        known = {NUMBER: GRAMMAR} | {mark: f"<[{id}]>" for mark, id in self.marks.items()}
        return " ".join(known.get(part) or json.dumps(part, ensure_ascii=False) for part in parts)

    def _rules(self, name: str, tool: Tool) -> Sequence[str]:
        head = self.texts(self.opening + tool.name + self.between)
        if self.elements is None:
            return [f"{json_rule(name, tool.arguments, behind=head)} {self.texts(self.closing)}"]
        arguments, rules = parameter_rules(name, tool.parameters, self.elements)
        return [f"{name}: {head} {arguments} {self.texts(self.closing)}", *rules]
