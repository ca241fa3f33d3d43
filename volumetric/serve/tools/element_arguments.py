"""Arguments as elements, one for each, as in Qwen3-Coder and GLM: their grammar, and their conversion to JSON.

Text arguments are written verbatim between their marks, others as JSON, as these models' templates write earlier calls
(https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct, chat_template.jinja).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from volumetric.base.errors import SpecError
from volumetric.generate.grammar_source import bound_whitespace
from volumetric.generate.stop_texts import undecided

_ANYTHING: Final = r"(?s:.*)"
_SAID: Final = frozenset(
    ("type", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
)
"""Keywords that do not constrain a text."""
_TEXTS: Final = _SAID | {"enum", "const", "minLength", "maxLength", "pattern"}
Kind = Literal["text", "text or null", "json"]


@dataclass(frozen=True, slots=True)
class ElementMarks:
    """Marks of arguments.

    Attributes
    ----------
    before, named, behind : marks before the name of an argument, between name and value, and after the value
    valued : mark between the name and a value that is not text, if it differs from `named`
    none : text that is written if there are no arguments
    """

    before: str
    named: str
    behind: str
    valued: str = ""
    none: str = ""

    def write_arguments(self, arguments: Mapping[str, Any]) -> str:
        """Return arguments in the model's format."""
        return "".join(self._one(key, value) for key, value in arguments.items()) or self.none

    def _one(self, key: str, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.before}{key}{self.named}{value}{self.behind}"
        return f"{self.before}{key}{self.valued or self.named}{json.dumps(value, ensure_ascii=False)}{self.behind}"


def kind_of(schema: Any, whole: Mapping[str, Any]) -> tuple[Kind, Mapping[str, Any]]:
    """Return how a value is written (text, JSON, or either), and the schema of its text.

    Parameters
    ----------
    whole : schema in which ``$ref`` is resolved
    """
    schema = _resolve_schema(schema, whole)
    kind, kinds = schema.get("type"), schema.get("anyOf")
    if kind == "string":
        return "text", schema
    if isinstance(kind, list) and set(kind) == {"string", "null"}:
        return "text or null", schema
    if isinstance(kinds, list) and kind is None and schema.keys() <= _SAID | {"anyOf"}:
        others = [one for one in (_resolve_schema(each, whole) for each in kinds) if one != {"type": "null"}]
        if len(others) == 1 < len(kinds) and others[0].get("type") == "string":
            return "text or null", others[0]
    return "json", schema


def _resolve_schema(schema: Any, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve ``$ref`` by a few steps within the whole schema; unresolved references are refused later."""
    for _ in range(8):
        ref = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(ref, str) or not ref.startswith("#/"):
            break
        node: Any = whole
        for step in ref[2:].split("/"):
            node = node.get(step) if isinstance(node, Mapping) else None
        if not isinstance(node, Mapping):
            break
        schema = node
    return schema if isinstance(schema, Mapping) else {}


def parameter_rules(name: str, schema: Mapping[str, Any], marks: ElementMarks) -> tuple[str, list[str]]:
    """Return the arguments of a function in llguidance's Lark, and the rules that they need.

    Parameters
    ----------
    name : prefix of the rules' names

    Raises
    ------
    SpecError : the schema does not describe an object, or has a keyword for text that cannot be enforced
    """
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    plain = isinstance(required, list) and all(isinstance(key, str) for key in required)
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping) or not plain:
        raise SpecError(
            "the schema must be of an object with properties, because this model writes arguments one by one"
        )
    for keyword in ("anyOf", "oneOf", "allOf", "$ref", "patternProperties", "minProperties", "if", "not"):
        if schema.get(keyword):
            raise SpecError(
                f"{keyword!r} of a whole object cannot be enforced, because this model writes arguments one by one"
            )
    unknown = sorted(key for key in required if key not in properties)
    if unknown:
        raise SpecError(f"{', '.join(unknown)} is required, but is not a property")
    none = f" | {_quoted(marks.none)}" if marks.none else ""
    if not properties and schema.get("additionalProperties") is not False:
        return f"({name}_any*{none})", _anything(f"{name}_any", marks)
    rules = _ArgumentRules(schema, marks)
    parts = [
        rules.add(f"{name}_{i}", key, property_schema) + ("" if key in required else "?")
        for i, (key, property_schema) in enumerate(properties.items())
    ]
    arguments = " ".join(parts)
    return (f"({arguments}{none})" if arguments else _quoted(marks.none)) if none else arguments, rules.lines


def _anything(name: str, marks: ElementMarks) -> list[str]:
    """Return the rules of an argument of any name."""
    head = rf"{_pattern(marks.before)}[\w.-]+"
    text = f"/{head}{_pattern(marks.named)}/ /{_ANYTHING}/ {_quoted(marks.behind)}"
    if not marks.valued:
        return [f"{name}[lazy]: {text}"]
    value = f"/{head}{_pattern(marks.valued)}/ %json {json.dumps(bound_whitespace({}))} {_quoted(marks.behind)}"
    return [f"{name}: {name}_text | {name}_value", f"{name}_text[lazy]: {text}", f"{name}_value: {value}"]


class _ArgumentRules:
    """Builds the rules of arguments.

    Parameters
    ----------
    whole : schema of all arguments
    marks : marks around each argument

    Attributes
    ----------
    lines : the rules
    """

    def __init__(self, whole: Mapping[str, Any], marks: ElementMarks) -> None:
        self.lines: list[str] = []
        self._whole = whole
        self._marks = marks

    def add(self, part: str, key: str, property_schema: Any) -> str:
        """Add the rules of an argument, and return the name of the first one. Raises `SpecError`."""
        head, close = f"{self._marks.before}{key}", _quoted(self._marks.behind)
        texts, values = _quoted(head + self._marks.named), _quoted(head + (self._marks.valued or self._marks.named))
        kind, schema = kind_of(property_schema, self._whole)
        if kind == "json":
            defs = {name: self._whole[name] for name in ("$defs", "definitions") if name in self._whole}
            json_schema = json.dumps(
                bound_whitespace({**defs, **property_schema} if isinstance(property_schema, Mapping) else {})
            )
            self.lines.append(f"{part}: {values} %json {json_schema} {close}")
            return part
        unknown = sorted(schema.keys() - _TEXTS)
        if unknown:
            raise SpecError(f"{unknown[0]!r} of {key!r} cannot be enforced, because this model writes texts verbatim")
        null = f" | {values} {_quoted('null' + self._marks.behind)}" if kind == "text or null" else ""
        listed = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(listed, list):
            words = [_quoted(one + self._marks.behind) for one in listed if isinstance(one, str)]
            if not words and not null:
                raise SpecError(f"{key!r} has no text that it may be")
            rule = f"{texts} ({' | '.join(words)}){null}" if words else null.removeprefix(" | ")
            self.lines.append(f"{part}: {rule}")
            return part
        # A lazy lexeme: a text does not contain its closing mark.
        self.lines += [f"{part}: {texts} {part}_text{null}", f"{part}_text[lazy]: {_text(schema, self._marks.behind)}"]
        return part


def _text(schema: Mapping[str, Any], behind: str) -> str:
    """Return the regular expression of a text and its closing mark."""
    close = _pattern(behind)
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    if not all(isinstance(bound, int) or bound == "" for bound in (least, most)):
        raise SpecError("minLength and maxLength must be whole numbers")
    lengths = f"/(?s:.{{{least},{most}}}){close}/"
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return lengths
    begin = "" if pattern.startswith("^") else _ANYTHING
    end = "" if pattern.endswith("$") and not pattern.endswith(r"\$") else _ANYTHING
    core = pattern[not begin : len(pattern) - (not end)].replace("/", r"\/")
    return f"{lengths} & /{begin}(?:{core}){end}{close}/"


def _pattern(mark: str) -> str:
    """Escape a mark for a regular expression in Lark; the marks contain no other special characters."""
    return mark.replace("/", r"\/").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class ElementReader:
    """Incremental parser that converts arguments to pieces of a JSON object.

    Parameters
    ----------
    schema : schema of the arguments
    marks : marks around each argument
    """

    def __init__(self, schema: Mapping[str, Any], marks: ElementMarks) -> None:
        self._schema = schema
        self._marks = marks
        self._begun = False
        self._kind: Kind | None = None
        self._quoted = False

    def take(self, text: str) -> tuple[int, str, bool]:
        """Return how many characters of `text` are consumed, their JSON, and whether the arguments end there."""
        done, json_text = 0, ""
        while True:
            count, piece, ended = self._value(text[done:]) if self._kind else self._key(text[done:])
            done, json_text = done + count, json_text + piece
            if ended or not count:
                return done, json_text, ended

    def _key(self, text: str) -> tuple[int, str, bool]:
        """Parse the name of the next argument, or the end of the arguments."""
        marks = self._marks
        if not text.startswith(marks.before):
            if marks.before.startswith(text) or (marks.none and not self._begun and marks.none.startswith(text)):
                return 0, "", False
            none = marks.none if not self._begun and text.startswith(marks.none) else ""
            return len(none), "}" if self._begun else "{}", True
        matches = [(at, mark) for mark in (marks.named, marks.valued) if mark and (at := text.find(mark)) >= 0]
        if not matches:
            return 0, "", False
        at, mark = min(matches)
        key = text[len(marks.before) : at]
        self._kind = self._kind_of(key) if not marks.valued else "json" if mark == marks.valued else "text"
        self._quoted = False
        json_text = f"{', ' if self._begun else '{'}{_json(key)}: "
        self._begun = True
        return at + len(mark), json_text, False

    def _kind_of(self, key: str) -> Kind:
        properties = self._schema.get("properties")
        property_schema = properties.get(key) if isinstance(properties, Mapping) else None
        return "text" if property_schema is None else kind_of(property_schema, self._schema)[0]

    def _value(self, text: str) -> tuple[int, str, bool]:
        behind = self._marks.behind
        before, mark, _ = text.partition(behind)
        if self._kind == "text or null" and not self._quoted:
            if mark and before == "null":
                return self._finish_value(before, before)
            if not mark and f"null{behind}".startswith(text):
                return 0, "", False
            self._kind = "text"
        if self._kind == "json":
            return self._finish_value(before, before) if mark else (0, "", False)
        quote = "" if self._quoted else '"'
        self._quoted = True
        if mark:
            return self._finish_value(before, f'{quote}{_json(before)[1:-1]}"')
        # The text may end with the start of the mark.
        sure = text[: len(text) - undecided(text, (behind,))]
        return len(sure), quote + _json(sure)[1:-1], False

    def _finish_value(self, before: str, json_text: str) -> tuple[int, str, bool]:
        self._kind = None
        return len(before) + len(self._marks.behind), json_text, False


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
