"""JSON schemas as people write them, for `serve_schemas.py`: records, lists, choices, references, patterns, formats.

The same number makes the same schema. Strings, lists and depth are bounded; references to themselves, and digits of
numbers and times, are not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import jsonschema

Schema = dict[str, Any]
_WORDS = (
    "name",
    "age",
    "town",
    "items",
    "price",
    "status",
    "tags",
    "date",
    "owner",
    "id",
    "note",
    "size",
    "kind",
    "parts",
)
_PATTERNS = (r"^[A-Z]{2}-[0-9]{4}$", r"^#[0-9a-f]{6}$", r"^(red|green|blue)[0-9]?$", r"^[a-z]+(-[a-z]+){0,2}$")
_FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6")
REFUSED: dict[str, Any] = {
    "uniqueItems": {"type": "array", "items": {"type": "integer"}, "maxItems": 3, "uniqueItems": True},
    "contains": {"type": "array", "items": {"type": "integer"}, "maxItems": 3, "contains": {"const": 1}},
    "not": {"not": {"type": "string"}},
    "if": {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}},
    "dependentRequired": {"type": "object", "dependentRequired": {"a": ["b"]}},
    "propertyNames": {"type": "object", "propertyNames": {"maxLength": 3}},
    "unevaluatedProperties": {"type": "object", "unevaluatedProperties": False},
}
"""Keyword → a schema that hangs on it, and that no grammar here enforces."""


def schema(number: int) -> Schema:
    """Return a schema by its number; one in twenty has a keyword of `REFUSED`."""
    rng = random.Random(number)
    made = _record(rng, 3)
    if number % 20 == 19:
        keyword = rng.choice(sorted(REFUSED))
        made["properties"] = {**made["properties"], "odd": REFUSED[keyword]}
        made["required"] = [*made["required"], "odd"]
    if rng.random() < 0.3:
        made["$defs"] = {"part": _record(rng, 1), "word": _text(rng)}
        names = {"part": {"$ref": "#/$defs/part"}, "word": {"$ref": "#/$defs/word"}}
        if rng.random() < 0.5:  # a list by references to itself
            inner = {"anyOf": [{"$ref": "#/$defs/link"}, {"type": "null"}]}
            made["$defs"]["link"] = _object(
                {"value": _whole(rng), "next": inner if rng.random() < 0.5 else {"type": "null"}}
            )
            names["chain"] = {"$ref": "#/$defs/link"}
        made["properties"] = {**made["properties"], **names}
        made["required"] = [*made["required"], *names]
    return made


def keyword_of(number: int) -> str | None:
    """Return which keyword of a schema is to be refused; None for one that is to be kept to."""
    odd = schema(number)["properties"].get("odd")
    return next((keyword for keyword, made in REFUSED.items() if made == odd), None)


def validate(text: str, made: Schema) -> None:
    """Raise `ValueError` or `jsonschema.ValidationError` unless a text is JSON by a schema, formats included."""
    jsonschema.Draft202012Validator(made, format_checker=_FORMAT_CHECKER).validate(json.loads(text))


_FORMAT_CHECKER = jsonschema.FormatChecker(("date", "email", "uuid", "ipv4", "ipv6"))


@_FORMAT_CHECKER.checks("date-time", ValueError)
def _is_date_time(value: object) -> bool:
    # RFC 3339 has leap seconds and small letters, Python has not.
    return not isinstance(value, str) or bool(datetime.fromisoformat(value.upper().replace(":60", ":59")))


@_FORMAT_CHECKER.checks("time", ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or _is_date_time(f"2026-01-01T{value}")


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    asked = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": asked, "additionalProperties": False}


def _record(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(_WORDS, rng.randrange(1, 5))
    return _object({name: _value(rng, depth) for name in names}, [name for name in names if rng.random() < 0.7])


def _value(rng: random.Random, depth: int) -> Schema:
    flat: list[Callable[[random.Random], Schema]] = [_text, _whole, _number, _choice, _flag, _maybe]
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(flat)(rng)
    match rng.randrange(5):
        case 0 | 1:
            return _record(rng, depth - 1)
        case 2:
            least = rng.randrange(3)
            items = _value(rng, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + rng.randrange(1, 3)}
        case 3:
            return {"anyOf": [_value(rng, depth - 1), _record(rng, 0)]}
        case _:
            return {"type": "array", "prefixItems": [_whole(rng), _text(rng)], "items": False, "minItems": 2}


def _text(rng: random.Random) -> Schema:
    match rng.randrange(4):
        case 0:
            return {"type": "string", "pattern": rng.choice(_PATTERNS), "maxLength": 24}
        case 1:
            form = rng.choice(_FORMATS)
            bound = {"maxLength": 40} if form == "email" else {}
            return {"type": "string", "format": form, **bound}
        case _:
            least = rng.randrange(4)
            return {
                "type": "string",
                "minLength": least,
                "maxLength": least + rng.randrange(1, 20),
                "description": "A text.",
            }


def _whole(rng: random.Random) -> Schema:
    least = rng.randrange(-50, 1000)
    bounds: Schema = {"minimum": least, "maximum": least + rng.randrange(1, 500)}
    if rng.random() < 0.3:
        bounds = {"exclusiveMinimum": least, "exclusiveMaximum": least + rng.randrange(2, 500)}
    return {"type": "integer", **bounds}


def _number(rng: random.Random) -> Schema:
    return {"type": "number", "minimum": 0, "maximum": rng.choice((1, 2.5, 100))}


def _choice(rng: random.Random) -> Schema:
    if rng.random() < 0.3:
        return {"const": rng.choice(("fixed", 7, None, True))}
    return {"enum": rng.sample(["low", "high", "none of both", "ä", 1, 2.5, None, False, 'a "b"'], rng.randrange(1, 5))}


def _flag(rng: random.Random) -> Schema:
    return {"type": "boolean"}


def _maybe(rng: random.Random) -> Schema:
    return {"type": ["string", "null"], "maxLength": 8}
