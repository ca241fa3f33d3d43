"""Schemas of arguments that hold no others than those that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.generate.grammar_source import MOST_LEVELS

_NAMED: Final = ("properties", "$defs", "definitions")
_LISTED: Final = ("prefixItems", "anyOf")
_TOGETHER: Final = frozenset(
    ("allOf", "oneOf", "not", "if", "dependentSchemas", "dependencies", "patternProperties", "unevaluatedProperties")
)
"""Keywords by which several schemas judge the same object, of which none names all of its properties."""


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema whose objects have no properties but those that it names, where it does not say of others.

    A function that takes two arguments fails when it is called with three, and schemas made of its signature seldom say
    so. With OpenAI's API responses are held to schemas closed in this way (and all of their properties are required,
    which they are not here), see "Strict mode" in https://platform.openai.com/docs/guides/function-calling; so are
    grammars of llama.cpp (grammars/README.md). A schema is returned as it is where parts of it judge an object
    together, for what one of them names another one would forbid; so is one that is nested too deeply to be read.
    """
    try:
        return _closed(schema, 0)
    except _JudgedTogetherError:
        return schema


class _JudgedTogetherError(Exception):
    """Parts of a schema judge an object together, or are too deep to tell."""


def _closed(given: Any, level: int) -> Any:
    """Return a schema with all within it that stand for themselves closed, or what is no schema as it is."""
    if not isinstance(given, Mapping):
        return given
    with_others = "properties" in given and ("$ref" in given or "anyOf" in given)
    if level > MOST_LEVELS or with_others or not _TOGETHER.isdisjoint(given):
        raise _JudgedTogetherError
    made = dict(given)
    for name in _NAMED:
        if isinstance(inner := given.get(name), Mapping):
            made[name] = {key: _closed(part, level + 1) for key, part in inner.items()}
    for name in _LISTED:
        if isinstance(inner := given.get(name), list):
            made[name] = [_closed(part, level + 1) for part in inner]
    for name in ("items", "additionalProperties"):
        if name in given:
            made[name] = _closed(given[name], level + 1)
    if _names_all(given):
        made["additionalProperties"] = False
    return made


def _names_all(schema: Mapping[str, Any]) -> bool:
    """Return whether an object can be made of the properties that a schema names, and it says nothing of others."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or not properties or "additionalProperties" in schema:
        return False
    least = schema.get("minProperties", 0)
    known = isinstance(required, list) and all(isinstance(key, str) and key in properties for key in required)
    return known and isinstance(least, int) and least <= len(properties)
