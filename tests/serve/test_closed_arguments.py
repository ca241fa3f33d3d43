"""Arguments of calls: none but those that a function names, where its parameters do not say of others."""

from __future__ import annotations

import pytest

from volumetric.serve.harmony import HarmonyFormat
from volumetric.serve.problem import RequestError
from volumetric.serve.tools import call_form_families
from volumetric.serve.tools.request_tools import RequestTools, Tool, closed_schema, tools_of

A, B = {"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "object", "properties": {"b": {}}}
CLOSED_A = A | {"additionalProperties": False}


def test_objects_are_closed_wherever_they_are():
    for open_, expected in (
        (A, CLOSED_A),
        ({"properties": {"one": A, "some": {"items": A}}}, {"one": CLOSED_A, "some": {"items": CLOSED_A}}),
        ({"properties": {"one": {"anyOf": [A, {"type": "null"}]}}}, {"one": {"anyOf": [CLOSED_A, {"type": "null"}]}}),
        ({"properties": {"one": {"prefixItems": [A]}}}, {"one": {"prefixItems": [CLOSED_A]}}),
        (
            {"properties": {"one": {"type": "object", "additionalProperties": A}}},
            {"one": {"type": "object", "additionalProperties": CLOSED_A}},
        ),
    ):
        wanted = expected if open_ is A else {"properties": expected, "additionalProperties": False}
        assert closed_schema(open_) == wanted
        assert closed_schema(wanted) == wanted
    named = {"$ref": "#/$defs/a", "$defs": {"a": A}}
    assert closed_schema(named) == {"$ref": "#/$defs/a", "$defs": {"a": CLOSED_A}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        A | {"additionalProperties": True},
        A | {"additionalProperties": {"type": "integer"}},
        A | {"unevaluatedProperties": True},
        A | {"patternProperties": {"^x": {}}},
        A | {"required": ["b"]},
        A | {"minProperties": 2},
        A | {"$ref": "#/$defs/b", "$defs": {"b": B}},
        A | {"anyOf": [B, {"type": "object"}]},
        {"allOf": [A, B]},
        {"oneOf": [A, B]},
        {"type": "object", "properties": {"one": {"allOf": [A, B]}}},
        {"properties": ["no schema"], "anyOf": {"no": "list"}, "required": "a"},
    ],
)
def test_what_says_of_others_or_is_judged_together_stays_open(schema):
    assert closed_schema(schema) == schema


def test_names_of_properties_are_no_keywords():
    schema = {"type": "object", "properties": {"allOf": A, "not": {"type": "integer"}}}
    assert closed_schema(schema)["properties"]["allOf"] == CLOSED_A
    assert closed_schema(schema)["additionalProperties"] is False


def test_what_is_nested_without_end_is_left_to_be_refused():
    schema = A
    for _ in range(5000):
        schema = {"properties": {"a": schema}}
    assert closed_schema(schema) is schema


@pytest.mark.parametrize("form", [call_form_families.HERMES, HarmonyFormat({})], ids=["hermes", "harmony"])
def test_calls_are_held_to_closed_parameters_unless_a_function_is_not_strict(form):
    for tool, held in ((Tool("f", A), True), (Tool("f", A, closed=False), False)):
        grammar = form.grammar(RequestTools(tools=[tool], declarations=[], required=True, parallel=False))
        assert ('"additionalProperties": false' in grammar) == held


def test_strict_speaks_to_the_server_and_not_to_the_model():
    for strict, held in ((None, CLOSED_A), (True, CLOSED_A), (False, A)):
        function = {"name": "f", "parameters": A, "strict": strict}
        asked = tools_of([{"type": "function", "function": function}], "auto", parallel=True)
        assert asked is not None
        assert [tool.arguments for tool in asked.tools] == [held]
        assert asked.declarations == [{"type": "function", "function": {"name": "f", "parameters": A}}]
    with pytest.raises(RequestError, match=r"tools\[0\].function.strict must be true or false"):
        tools_of([{"type": "function", "function": {"name": "f", "strict": "yes"}}], "auto", parallel=True)
