"""Schemas of arguments that hold no others than those that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    ahead: list[tuple[Mapping[str, Any], int]] = [(schema, 0)]
    while ahead:
        one, level = ahead.pop()
        with_others = "properties" in one and ("$ref" in one or "anyOf" in one)
        if level > MOST_LEVELS or with_others or not _TOGETHER.isdisjoint(one):
            return schema
        ahead += [(part, level + 1) for part in _parts(one)]
    return _closed(schema)


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas within a schema that stand for themselves."""
    for name in _NAMED:
        inner = schema.get(name)
        yield from (part for part in inner.values() if isinstance(part, Mapping)) if isinstance(inner, Mapping) else ()
    for name in _LISTED:
        inner = schema.get(name)
        yield from (part for part in inner if isinstance(part, Mapping)) if isinstance(inner, list) else ()
    for name in ("items", "additionalProperties"):
        inner = schema.get(name)
        yield from (inner,) if isinstance(inner, Mapping) else ()


def _closed(given: Any) -> Any:
    """Return one of the schemas that `_parts` yields, closed, or what is no schema as it is."""
    if not isinstance(given, Mapping):
        return given
    made = dict(given)
    for name in _NAMED:
        if isinstance(inner := given.get(name), Mapping):
            made[name] = {key: _closed(part) for key, part in inner.items()}
    for name in _LISTED:
        if isinstance(inner := given.get(name), list):
            made[name] = [_closed(part) for part in inner]
    for name in ("items", "additionalProperties"):
        if name in given:
            made[name] = _closed(given[name])
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
