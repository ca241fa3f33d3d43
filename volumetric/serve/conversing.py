"""Conversing: what a conversation asks of a model, whichever endpoint it came by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from volumetric.errors import GenerationError
from volumetric.generate.drafting import PromptLookup
from volumetric.serve.answers import AnswerForm
from volumetric.serve.completing import engine_of
from volumetric.serve.forms import grammar_of
from volumetric.serve.jobs import jobs_of
from volumetric.serve.problem import bad, problem_of
from volumetric.serve.reasoning import Thinking, thinking_of
from volumetric.serve.tools.asked import tools_of
from volumetric.serve.tools.form import form_of, instructions

if TYPE_CHECKING:
    from volumetric.generate.drafting import Drafter
    from volumetric.generate.scheduling.job import Job
    from volumetric.serve.fields.chat import ChatRequest
    from volumetric.serve.serving import Served, Serving

_TAIL = 16
"""Tokens at the end of a prompt in which a mark of reasoning is looked for."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation that is ready to be answered.

    Attributes
    ----------
    served : who answers
    jobs : what is to be computed
    form : of the answers
    """

    served: Served
    jobs: Sequence[Job]
    form: AnswerForm


async def conversation_of(serving: Serving, asked: ChatRequest) -> Conversation:
    """Return a conversation with the tools, forms and sampling that it asks for.

    Raises
    ------
    RequestError : it contradicts itself, cannot be honoured, or does not fit
    """
    served = serving.model(asked.model)
    engine_of(served)
    asked.check()
    args, messages = template_args(asked), asked.conversation()
    tools = tools_of(asked.tools, asked.tool_choice, parallel=asked.parallel_tool_calls is not False)
    calls = None
    if tools is not None:
        template = served.model.loaded.chat_template
        form, told = form_of("" if template is None else template.source, _special_id(served))
        calls = tools, form
        if told:
            args["tools"] = list(tools.told)
        else:
            messages = with_instructions(messages, instructions(tools))
    forced = calls is not None and calls[0].required
    grammar = await grammar_of(serving, served, asked, asked.response_format, calls)
    try:
        going_on = bool(asked.continue_final_message)
        ids = await serving.aside(conversation_ids, served, messages, args, going_on)
        drafter = await serving.aside(_drafter, served, asked.predicted)
    except GenerationError as error:
        raise problem_of(error, param="messages") from None
    # An answer that is held to a form from its first token on has no room for reasoning.
    free = grammar is None or (calls is not None and not forced)
    thinking = _thinking(serving, served, asked, ids) if free else None
    answer = AnswerForm(calls=None if calls is None else calls[1], thinking=thinking)
    shown = answer.marks.values()
    jobs = jobs_of(
        asked, served, [ids], serving.settings, grammar=grammar, drafter=drafter, shown=shown, param="messages"
    )
    return Conversation(served, jobs, answer)


def _special_id(served: Served) -> Callable[[str], int | None]:
    """Return what gives the id of a special token by its text."""
    tokenizer = served.model.tokenizer
    return (lambda _: None) if tokenizer is None else tokenizer.token_id


def _thinking(serving: Serving, served: Served, asked: ChatRequest, ids: Sequence[int]) -> Thinking | None:
    """Return how the model reasons behind a prompt, where it is to be told apart from the answer."""
    template, tokenizer = served.model.loaded.chat_template, served.model.tokenizer
    if serving.settings.reasoning == "none" or template is None or tokenizer is None:
        return None
    found = thinking_of(template.source, tokenizer.decode(ids[-_TAIL:], skip_special_tokens=False))
    return found and replace(found, told=asked.include_reasoning is not False)


def _drafter(served: Served, predicted: str) -> Callable[[], Drafter] | None:
    """Return what proposes the tokens of a text; None for an empty one."""
    tokenizer = served.model.tokenizer
    if not predicted or tokenizer is None:
        return None
    return partial(PromptLookup, tokenizer.encode(predicted, add_special_tokens=False))


def with_instructions(messages: Sequence[dict[str, Any]], told: str) -> list[dict[str, Any]]:
    """Return messages whose first one, of the system, ends with what is told; one is made where there is none."""
    first, *rest = messages
    if first["role"] != "system":
        return [{"role": "system", "content": told}, *messages]
    return [first | {"content": f"{first['content']}\n\n{told}"}, *rest]


def template_args(asked: ChatRequest) -> dict[str, Any]:
    """Return what the chat template is told besides the messages. Raises `RequestError`."""
    args = dict(asked.chat_template_kwargs or {})
    for name in ("messages", "tools", "add_generation_prompt"):
        if name in args:
            raise bad(f"chat_template_kwargs cannot have {name!r}", param="chat_template_kwargs")
    if asked.reasoning_effort is not None:
        args["reasoning_effort"] = asked.reasoning_effort
    going_on = bool(asked.continue_final_message)
    if going_on and asked.add_generation_prompt:
        raise bad("continue_final_message and add_generation_prompt exclude each other", param="add_generation_prompt")
    args["add_generation_prompt"] = not going_on if asked.add_generation_prompt is None else asked.add_generation_prompt
    return args


def conversation_ids(
    served: Served, messages: list[dict[str, Any]], args: dict[str, Any], going_on: bool = False
) -> list[int]:
    """Return a conversation's token ids; `going_on` leaves the last message open.

    Raises `GenerationError` where the template refuses it.
    """
    model = served.model
    if not going_on:
        return model.encode(messages, template_args=args)
    template, tokenizer = model.loaded.chat_template, model.tokenizer
    if template is None or tokenizer is None:
        return model.encode(messages, template_args=args)  # raises, with what is missing
    text = template.render(messages, **args)
    end = messages[-1]["content"].rstrip()
    at = text.rfind(end)
    if at < 0:
        raise GenerationError("the chat template does not show the last message as it is, so it cannot be continued")
    return tokenizer.encode(text[: at + len(end)], add_special_tokens=False)
