"""Constraints on answers: the grammar for a request's schema, regex, grammar or tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from volumetric.base.errors import GenerationError, SpecError
from volumetric.serve.problem import RequestError, bad_request, problem_of

if TYPE_CHECKING:
    from volumetric.generate.grammar import Grammar
    from volumetric.serve.fields.chat_request import ResponseFormat
    from volumetric.serve.fields.sampling_fields import SamplingFields
    from volumetric.serve.harmony import HarmonyFormat
    from volumetric.serve.reasoning import ReasoningFormat
    from volumetric.serve.serving import ServedModel, Serving
    from volumetric.serve.tools.call_form import CallForm
    from volumetric.serve.tools.request_tools import RequestTools


FormRequest: TypeAlias = tuple[str, Any, str]
"""The kind of a constraint, its text, and the field that sets it."""


async def grammar_of(
    serving: Serving,
    served: ServedModel,
    body: SamplingFields,
    answer: ResponseFormat | None = None,
    tools: tuple[RequestTools, CallForm | HarmonyFormat] | None = None,
    thinking: ReasoningFormat | None = None,
) -> Grammar | None:
    """Return the grammar of a request's answers, or None if they are unconstrained.

    Raises
    ------
    RequestError : the request has more than one constraint, or one that cannot be enforced
    """
    form = _requested_form(body, answer)
    if tools is not None:
        schema = _schema_beside_calls(form, *tools)
        if form is not None and schema is not None:
            await _build_grammar(served, form)  # so that an error names the field, not the tools
        try:
            form = ("lark", await serving.run_in_thread(calls_grammar, *tools, thinking, schema), "tools")
        except SpecError as error:
            raise problem_of(error, param="tools") from None
    if form is None:
        return None
    if body.ignore_eos:
        raise bad_request(
            f"ignore_eos and {form[2]} exclude each other: a constrained answer has an end", param="ignore_eos"
        )
    return await _build_grammar(served, form)


async def _build_grammar(served: ServedModel, form: FormRequest) -> Grammar:
    """Return the grammar of a constraint. Raises `RequestError` if it cannot be enforced."""
    kind, what, param = form
    try:
        if isinstance(served.forms, GenerationError):
            raise served.forms
        return await served.forms.grammar(kind, what)
    except (SpecError, GenerationError) as error:
        raise problem_of(error, param=param) from None


def answers_in_form(
    body: SamplingFields,
    answer: ResponseFormat | None,
    tools: tuple[RequestTools, CallForm | HarmonyFormat] | None = None,
) -> bool:
    """Whether a request constrains its answer from the first token on.

    Raises
    ------
    RequestError : the request has more than one constraint, or one that `tools` exclude
    """
    form = _requested_form(body, answer)
    if tools is not None:
        _schema_beside_calls(form, *tools)
    return form is not None


def calls_grammar(
    tools: RequestTools,
    form: CallForm | HarmonyFormat,
    thinking: ReasoningFormat | None,
    schema: Mapping[str, Any] | None = None,
) -> str:
    """Return the grammar of an answer: optional reasoning, then calls, or text that matches the schema if given."""
    grammar = form.grammar(tools, schema)
    if thinking is None or not thinking.grammar:
        return grammar
    return grammar.replace("start: ", f"start: {thinking.grammar} answer\nanswer: ", 1)


def _schema_beside_calls(
    answer_form: FormRequest | None, tools: RequestTools, form: CallForm | HarmonyFormat
) -> Mapping[str, Any] | None:
    """Return the schema of an answer that may be calls instead; None if it is unconstrained, or must be calls.

    Raises
    ------
    RequestError : the answer could not be distinguished from calls
    """
    if answer_form is None:
        return None
    kind, what, param = answer_form
    if kind != "json_schema":
        raise bad_request(
            f"tools and {param} exclude each other: text that is not JSON may look like a call", param=param
        )
    if tools.required:
        return None
    if form.is_json:
        message = f"{param} and tools exclude each other for this model: its calls are JSON, too"
        raise bad_request(f'{message}: set tool_choice to "required" or "none"', param=param)
    return what


def _requested_form(body: SamplingFields, answer: ResponseFormat | None) -> FormRequest | None:
    """Return the request's constraint: its kind, its text, and the field that sets it."""
    forms: list[FormRequest] = body.forms
    if answer is not None and answer.type == "json_object":
        forms.append(("json_schema", {"type": "object"}, "response_format"))
    elif answer is not None and answer.type == "json_schema":
        if answer.json_schema is None or answer.json_schema.schema is None:
            raise _without_schema()
        forms.append(("json_schema", answer.json_schema.schema, "response_format"))
    if len(forms) > 1:
        raise bad_request(f"{forms[0][2]} and {forms[1][2]} exclude each other", param=forms[1][2])
    return forms[0] if forms else None


def _without_schema() -> RequestError:
    return bad_request("response_format.json_schema.schema is missing", param="response_format.json_schema.schema")
