"""The tools of a request: ``tools``, ``tool_choice`` and the schemas of arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from volumetric.generate.grammar_source import MOST_LEVELS
from volumetric.serve.problem import RequestError, bad_request

_NAMED: Final = ("properties", "$defs", "definitions")
_LISTED: Final = ("prefixItems", "anyOf")
_TOGETHER: Final = frozenset(
    ("allOf", "oneOf", "not", "if", "dependentSchemas", "dependencies", "patternProperties", "unevaluatedProperties")
)
"""Keywords that apply several schemas to the same object, so that none of them names all its properties."""


def closed_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set ``additionalProperties: false`` in each object of a schema that does not set it.

    A function of two arguments fails if it is called with three, and schemas derived from its signature seldom forbid
    more. OpenAI's strict mode closes schemas in this way, too, but also makes all properties required
    (https://platform.openai.com/docs/guides/function-calling); so do grammars of llama.cpp (grammars/README.md). A
    schema is returned unchanged if several parts of it apply to the same object, because one part would forbid the
    properties of another, or if it is nested too deeply.
    """
    try:
        return _close_schema(schema, 0)
    except _JudgedTogetherError:
        return schema


class _JudgedTogetherError(Exception):
    """Several parts of a schema apply to the same object, or it is nested too deeply."""


def _close_schema(schema: Any, level: int) -> Any:
    """Close a schema and those nested in it; return anything but a schema unchanged."""
    if not isinstance(schema, Mapping):
        return schema
    with_others = "properties" in schema and ("$ref" in schema or "anyOf" in schema)
    if level > MOST_LEVELS or with_others or not _TOGETHER.isdisjoint(schema):
        raise _JudgedTogetherError
    strict = dict(schema)
    for name in _NAMED:
        if isinstance(inner := schema.get(name), Mapping):
            strict[name] = {key: _close_schema(part, level + 1) for key, part in inner.items()}
    for name in _LISTED:
        if isinstance(inner := schema.get(name), list):
            strict[name] = [_close_schema(part, level + 1) for part in inner]
    for name in ("items", "additionalProperties"):
        if name in schema:
            strict[name] = _close_schema(schema[name], level + 1)
    if _names_all(schema):
        strict["additionalProperties"] = False
    return strict


def _names_all(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has the properties of an object, and does not mention others."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or not properties or "additionalProperties" in schema:
        return False
    least = schema.get("minProperties", 0)
    known = isinstance(required, list) and all(isinstance(key, str) and key in properties for key in required)
    return known and isinstance(least, int) and least <= len(properties)


MOST_TOOLS: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOTHING: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function.

    Attributes
    ----------
    name : its name
    parameters : JSON schema of its arguments
    closed : other arguments are forbidden unless the schema allows them
    """

    name: str
    parameters: Mapping[str, Any]
    closed: bool = True

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The schema that calls must match."""
        return closed_schema(self.parameters) if self.closed else self.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTools:
    """The tools of a request.

    Attributes
    ----------
    tools : tools that the answer may call
    declarations : all tools for the template, without `strict`, which is meant for the server
    required : whether the answer must be a call
    parallel : whether it may be several calls
    """

    tools: Sequence[Tool]
    declarations: Sequence[Mapping[str, Any]]
    required: bool
    parallel: bool


def tools_of(tools: Sequence[Mapping[str, Any]] | None, choice: Any, *, parallel: bool) -> RequestTools | None:
    """Return the tools of a request, or None if the answer must be text.

    Raises
    ------
    RequestError : a tool or the choice is malformed, or the choice names an unknown tool
    """
    choice, allowed = _allowed(choice)
    named = _named_tool(choice)
    if not tools:
        if named is not None or choice == "required" or allowed is not None:
            raise bad_request("tool_choice requires tools", param="tool_choice")
        return None
    if len(tools) > MOST_TOOLS:
        raise bad_request(f"tools must have at most {MOST_TOOLS} items, got {len(tools)}", param="tools")
    offered = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    names = [tool.name for tool in offered]
    if len(set(names)) < len(names):
        raise bad_request("two tools have the same name", param="tools")
    if choice == "none":
        return None
    chosen = names if named is None and allowed is None else [named] if allowed is None else allowed
    for name in chosen:
        if name not in names:
            raise bad_request(f"tool_choice names {name!r}, the tools are {', '.join(names)}", param="tool_choice")
    return RequestTools(
        tools=[tool for tool in offered if tool.name in chosen],
        declarations=[{"type": "function", "function": _declaration(tool["function"])} for tool in tools],
        required=named is not None or choice == "required",
        parallel=parallel and named is None,  # a named function is called exactly once, as in OpenAI's API
    )


def _allowed(choice: Any) -> tuple[Any, list[str] | None]:
    """Return the mode of the choice, and the names of the allowed tools; None: all. Raises `RequestError`."""
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return choice, None
    allowed, place = choice.get("allowed_tools"), "tool_choice.allowed_tools"
    mode, tools = (allowed.get("mode"), allowed.get("tools")) if isinstance(allowed, Mapping) else (None, None)
    if mode not in ("auto", "required") or not isinstance(tools, list) or not tools:
        raise bad_request(
            f'{place} must have the mode "auto" or "required" and at least one of the tools', param="tool_choice"
        )
    return mode, [
        name for tool in tools if (name := _named_tool(tool if isinstance(tool, Mapping) else {})) is not None
    ]


def _named_tool(choice: Any) -> str | None:
    if choice in (None, "none", "auto", "required"):
        return None
    function = choice.get("function") if isinstance(choice, Mapping) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise bad_request('tool_choice must be "none", "auto", "required", or name functions', param="tool_choice")
    return name


def _tool(tool: Mapping[str, Any], where: str) -> Tool:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        raise bad_request(f'{where} must have the type "function" and a function', param=where)
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _ill_formed(f"{where}.function.name", "1 to 64 letters, digits, underscores, dots and dashes", name)
    if parameters is not None and not isinstance(parameters, Mapping):
        raise _ill_formed(f"{where}.function.parameters", "a JSON schema", parameters)
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _ill_formed(f"{where}.function.strict", "true or false", strict)
    return Tool(name, parameters or _NOTHING, closed=strict is not False)


def _declaration(function: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in function.items() if name != "strict"}


def _ill_formed(place: str, expected: str, got: object) -> RequestError:
    return bad_request(f"{place} must be {expected}, got {str(got)[:100]!r}", param=place, code="invalid_value")
