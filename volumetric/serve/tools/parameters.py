"""Arguments as elements, one for each, as Qwen3-Coder writes them: their grammar, and their way back to JSON.

An argument that is text stands between its marks as it is, any other one as JSON, which is how the model's template
shows earlier calls (https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct, chat_template.jinja).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from volumetric.errors import SpecError
from volumetric.generate.grammar import spaced

OPEN, NAMED, CLOSE = "<parameter=", ">\n", "\n</parameter>\n"
_ANYTHING: Final = r"(?s:.*)"
_SAID: Final = frozenset(
    ("type", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
)
"""Keywords that say nothing of a text."""
_TEXTS: Final = _SAID | {"enum", "const", "minLength", "maxLength", "pattern"}
Kind = Literal["text", "text or null", "json"]


def written_parameters(given: Mapping[str, Any]) -> str:
    """Return arguments as a model writes them."""
    return "".join(
        f"{OPEN}{key}{NAMED}{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}{CLOSE}"
        for key, value in given.items()
    )


def kind_of(schema: Any, whole: Mapping[str, Any]) -> tuple[Kind, Mapping[str, Any]]:
    """Return how a value is written, and the schema of its text.

    Parameters
    ----------
    whole : schema in which ``$ref`` is looked up
    """
    schema = _resolved(schema, whole)
    kind, kinds = schema.get("type"), schema.get("anyOf")
    if kind == "string":
        return "text", schema
    if isinstance(kind, list) and set(kind) == {"string", "null"}:
        return "text or null", schema
    if isinstance(kinds, list) and kind is None and schema.keys() <= _SAID | {"anyOf"}:
        others = [one for one in (_resolved(each, whole) for each in kinds) if one != {"type": "null"}]
        if len(others) == 1 < len(kinds) and others[0].get("type") == "string":
            return "text or null", others[0]
    return "json", schema


def _resolved(schema: Any, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a schema refers to, by a few steps within the whole; what cannot be found is left to be refused."""
    for _ in range(8):
        ref = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(ref, str) or not ref.startswith("#/"):
            break
        found: Any = whole
        for step in ref[2:].split("/"):
            found = found.get(step) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = found
    return schema if isinstance(schema, Mapping) else {}


def parameter_rules(name: str, schema: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the arguments of a function in llguidance's Lark, and the rules that they need.

    Parameters
    ----------
    name : with which names of rules begin

    Raises
    ------
    SpecError : the schema is of no object, or has a keyword for a text that is not enforced
    """
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    plain = isinstance(required, list) and all(isinstance(key, str) for key in required)
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping) or not plain:
        raise SpecError("arguments that are written one by one need a schema of an object with properties")
    for keyword in ("anyOf", "oneOf", "allOf", "$ref", "patternProperties", "minProperties", "if", "not"):
        if schema.get(keyword):
            raise SpecError(f"{keyword!r} of a whole object cannot be enforced where arguments are written one by one")
    unknown = sorted(key for key in required if key not in properties)
    if unknown:
        raise SpecError(f"{', '.join(unknown)} is required, but no property")
    if not properties and schema.get("additionalProperties") is not False:
        return f"{name}_any*", [f"{name}_any[lazy]: {_quoted(OPEN)} /[\\w.-]+>\\n/ /{_ANYTHING}/ {_quoted(CLOSE)}"]
    parts, rules = [], []
    for i, (key, given) in enumerate(properties.items()):
        part = f"{name}_{i}"
        parts.append(part if key in required else f"{part}?")
        rules += _value(part, f"{OPEN}{key}{NAMED}", given, schema, key)
    return " ".join(parts), rules


def _value(part: str, head: str, given: Any, whole: Mapping[str, Any], key: str) -> list[str]:
    kind, schema = kind_of(given, whole)
    if kind == "json":
        defs = {name: whole[name] for name in ("$defs", "definitions") if name in whole}
        told = json.dumps(spaced({**defs, **given} if isinstance(given, Mapping) else {}))
        return [f"{part}: {_quoted(head)} %json {told} {_quoted(CLOSE)}"]
    unknown = sorted(schema.keys() - _TEXTS)
    if unknown:
        raise SpecError(f"{unknown[0]!r} of {key!r} is not enforced where texts are written as they are")
    null = ["null"] if kind == "text or null" else []
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(listed, list):
        texts = [one for one in listed if isinstance(one, str)] + null
        if not texts:
            raise SpecError(f"{key!r} has no text to choose from")
        return [f"{part}: {_quoted(head)} ({' | '.join(map(_quoted, texts))}) {_quoted(CLOSE)}"]
    # One lexeme that ends as early as it can: a text has no mark of its own end inside.
    ends = f"{part}_text[lazy]: {_text(schema)}"
    more = f" | {_quoted('null' + CLOSE)}" if null else ""
    return [f"{part}: {_quoted(head)} ({part}_text{more})", ends]


def _text(schema: Mapping[str, Any]) -> str:
    """Return the expression of a text and the mark behind it."""
    close = CLOSE.replace("/", r"\/").replace("\n", r"\n")
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


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class ElementReader:
    """Reads arguments as they come, and tells them as pieces of a JSON object.

    Parameters
    ----------
    schema : of the arguments
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._begun = False
        self._kind: Kind | None = None
        self._quoted = False

    def take(self, text: str) -> tuple[int, str, bool]:
        """Return how much of `text` is done with, what it is in JSON, and whether the arguments end there."""
        done, told = 0, ""
        while True:
            count, piece, ended = self._value(text[done:]) if self._kind else self._key(text[done:])
            done, told = done + count, told + piece
            if ended or not count:
                return done, told, ended

    def _key(self, text: str) -> tuple[int, str, bool]:
        """Read the name of the next argument, or find that there is none."""
        if OPEN.startswith(text[: len(OPEN)]) and NAMED not in text:
            return 0, "", False
        if not text.startswith(OPEN):
            return 0, "}" if self._begun else "{}", True
        key = text[len(OPEN) : text.index(NAMED)]
        properties = self._schema.get("properties")
        given = properties.get(key) if isinstance(properties, Mapping) else None
        self._kind = "text" if given is None else kind_of(given, self._schema)[0]
        self._quoted = False
        told = f"{', ' if self._begun else '{'}{_json(key)}: "
        self._begun = True
        return text.index(NAMED) + len(NAMED), told, False

    def _value(self, text: str) -> tuple[int, str, bool]:
        before, found, _ = text.partition(CLOSE)
        if self._kind == "text or null" and not self._quoted:
            if found and before == "null":
                return self._closed(before, before)
            if not found and f"null{CLOSE}".startswith(text):
                return 0, "", False
            self._kind = "text"
        if self._kind == "json":
            return self._closed(before, before) if found else (0, "", False)
        quote = "" if self._quoted else '"'
        self._quoted = True
        if found:
            return self._closed(before, f'{quote}{_json(before)[1:-1]}"')
        # The end of what is here may begin the mark.
        kept = next((n for n in range(min(len(CLOSE) - 1, len(text)), 0, -1) if CLOSE.startswith(text[-n:])), 0)
        sure = text[: len(text) - kept]
        return len(sure), quote + _json(sure)[1:-1], False

    def _closed(self, before: str, told: str) -> tuple[int, str, bool]:
        self._kind = None
        return len(before) + len(CLOSE), told, False


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
