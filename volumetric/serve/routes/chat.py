"""``POST /v1/chat/completions``, and the preparation of conversations for all endpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from volumetric.base.errors import GenerationError
from volumetric.generate.drafters import PromptLookup
from volumetric.generate.prompt import check_ids
from volumetric.serve.answer_grammar import answers_in_form, grammar_of
from volumetric.serve.bodies import prompts_of, read_body
from volumetric.serve.completion_answers import ChatAnswer
from volumetric.serve.event_stream import cancel_on_disconnect
from volumetric.serve.fields.chat_request import ChatRequest
from volumetric.serve.harmony import FINAL
from volumetric.serve.output_parser import OutputFormat
from volumetric.serve.problem import bad_request, problem_of
from volumetric.serve.respond import complete, engine_of, jobs_of, quick_jobs
from volumetric.serve.serving import LARGE, size_of
from volumetric.serve.tools.call_form_families import functions_json, instructions
from volumetric.serve.tools.call_history import calls_for_template
from volumetric.serve.tools.request_tools import tools_of

if TYPE_CHECKING:
    from volumetric.generate.drafters import Drafter
    from volumetric.generate.grammar import Grammar
    from volumetric.generate.scheduling.jobs import Job
    from volumetric.loaders.chat_contents import MessageContents
    from volumetric.serve.chat_format import ChatFormat
    from volumetric.serve.serving import ServedModel, Serving
    from volumetric.serve.tools.request_tools import RequestTools

_TAIL = 16
"""Tokens at the end of a prompt that are searched for a mark of reasoning."""


async def chat(request: Request) -> Response:
    """Answer a conversation."""
    serving: Serving = request.app.state.serving
    body = await read_body(request, ChatRequest)
    async with cancel_on_disconnect(request.receive):
        conversation = await prepare_chat(serving, body, prompts_of(request))
    sizes = [len(job.prompt) for job in conversation.jobs]
    shape = ChatAnswer(
        **conversation.served.answer_options(body), sizes=sizes, texts=body.texts, form=conversation.form
    )
    return await complete(request, conversation.served, conversation.jobs, shape, stream=bool(body.stream))


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A conversation that is ready to be answered.

    Attributes
    ----------
    served : the model
    jobs : jobs of the scheduler
    form : the format of the answers; None: all generated text is content
    """

    served: ServedModel
    jobs: Sequence[Job]
    form: OutputFormat | None


async def prepare_chat(serving: Serving, body: ChatRequest, prompts: Sequence[list[int]] | None = None) -> PreparedChat:
    """Prepare a conversation with its tools, constraints and sampling parameters.

    Tools, constraints, drafts, reasoning and channels cost nothing unless the request or the model's chat format has
    them.

    Parameters
    ----------
    prompts : token ids of the conversation, if a process for HTTP has made them

    Raises
    ------
    RequestError : fields contradict each other or are not supported, or the conversation does not fit the context
    """
    served = serving.model(body.model)
    engine_of(served)
    body.check()
    args, going_on = template_args(body), bool(body.continue_final_message)
    tools = None
    if body.tools or body.tool_choice is not None:
        tools = tools_of(body.tools, body.tool_choice, parallel=body.parallel_tool_calls is not False)
    style = served.chat_format(tools=tools is not None)
    if style.channels is not None and going_on and tools is not None:
        raise bad_request("this model continues a message only without tools", param="continue_final_message")
    formed = body.response_format is not None or bool(body.forms)
    has_form = formed and answers_in_form(
        body, body.response_format, None if tools is None else (tools, style.channels or style.calls)
    )
    drafter = form = grammar = None
    try:
        if prompts is not None and tools is None:
            (ids,), messages, size = prompts, [], 0
        else:
            messages, args, size, ids = await serving.run_in_thread(
                _messages, served, not serving.settings.parse_special, body, style, tools, args
            )
        if ids is None:
            ids = await serving.run_in_thread(conversation_ids, served, messages, args, going_on, size=size)
        if body.prediction is not None:
            drafter = await serving.run_in_thread(_drafter, served, body.predicted, size=len(body.predicted))
    except GenerationError as error:
        raise problem_of(error, param="messages") from None
    if formed or tools is not None or not style.plain:
        ids, form, grammar = await _prepare_form(serving, served, body, style, tools, ids, has_form=has_form)
    shown = () if form is None else form.special_tokens
    make = partial(jobs_of, grammar=grammar, drafter=drafter, shown=shown, param="messages")
    jobs = await serving.run_in_thread(make, body, served, [ids], serving.settings, quick=quick_jobs(body, len(ids)))
    return PreparedChat(served, jobs, form)


async def _prepare_form(
    serving: Serving,
    served: ServedModel,
    body: ChatRequest,
    style: ChatFormat,
    tools: RequestTools | None,
    ids: list[int],
    *,
    has_form: bool,
) -> tuple[list[int], OutputFormat, Grammar | None]:
    """Return the prompt, the answer format and the grammar of a request whose answers are more than plain text.

    Parameters
    ----------
    has_form : answers are constrained from their first token on

    Raises
    ------
    RequestError : a constraint cannot be enforced, or excludes another field
    """
    channels, going_on, calls = style.channels, bool(body.continue_final_message), style.calls
    tail = served.text(ids[-_TAIL:])
    calls = replace(calls, inside=bool(calls.aloud) and tail.endswith(calls.trigger))
    if has_form and going_on and tools is not None:
        message = "cannot be combined with both tools and a constraint: the message may be a call or an answer"
        raise bad_request(f"continue_final_message {message}", param="continue_final_message")
    thinking = style.thinking
    # An answer that is constrained from its first token on has no reasoning.
    if channels is not None or has_form or (tools is not None and tools.required):
        thinking = None
    merged = serving.settings.reasoning == "none"
    if merged and thinking is not None and not thinking.marks:
        thinking = None  # its marks are text, and stay in the content
    if thinking is not None:
        thinking = thinking.behind(tail)
    asked_calls = None if tools is None else (tools, channels or calls)
    grammar = await grammar_of(serving, served, body, body.response_format, asked_calls, thinking)
    if has_form and tools is None and not going_on and served.model.tokenizer is not None:
        head = FINAL if channels is not None else calls.aloud + calls.between if calls.inside else ""
        ids = [*ids, *served.model.tokenizer.encode(head, add_special_tokens=False)]
    if channels is not None:
        body.stop_token_ids = [*(body.stop_token_ids or ()), *channels.ends]
    read = tools is not None or (bool(calls.aloud or calls.spoken) and not has_form and not going_on)
    form = OutputFormat(
        tools=() if tools is None else tools.tools,
        calls=calls if read and channels is None else None,
        apart=has_form,
        thinking=thinking,
        channels=channels,
        inside=(has_form and tools is None) or going_on,
        show_reasoning=body.include_reasoning is not False,
        merged=merged,
    )
    return ids, form, grammar


def _messages(
    served: ServedModel,
    plain: bool,
    body: ChatRequest,
    style: ChatFormat,
    tools: RequestTools | None,
    args: dict[str, Any],
) -> tuple[list[dict[str, Any]], dict[str, Any], int, list[int] | None]:
    """Return the messages and template arguments of a request in the form that templates expect, and their size.

    The last value are the ids of a conversation that is not large. Text of clients is marked as data before the server
    adds its own text, which may contain control tokens.

    Raises
    ------
    GenerationError, RequestError : the template cannot render a message
    """
    messages, declarations = body.conversation(), () if tools is None else tools.declarations
    messages, args, declarations = as_data(served, plain, messages, args, declarations)
    if any("tool_calls" in message for message in messages):
        messages = calls_for_template(messages, style.source, None if style.channels is not None else style.calls)
    if tools is not None:
        messages = _with_tool_declarations(messages, replace(tools, declarations=declarations), style, args)
    size = size_of((messages, args))
    ids = conversation_ids(served, messages, args, bool(body.continue_final_message)) if size <= LARGE else None
    return messages, args, size, ids


def _with_tool_declarations(
    messages: list[dict[str, Any]], tools: RequestTools, style: ChatFormat, args: dict[str, Any]
) -> list[dict[str, Any]]:
    """Declare tools to the model, in the messages or in the template's arguments."""
    if style.telling == "template":
        args["tools"] = list(tools.declarations)
        return messages
    if style.telling == "message":
        return with_system(messages, tools=functions_json(tools))
    return with_system(messages, instructions(tools, style.calls))


def _drafter(served: ServedModel, predicted: str) -> Callable[[], Drafter] | None:
    """Return a factory of drafters that propose the tokens of a text; None if it is empty."""
    tokenizer = served.model.tokenizer
    if not predicted or tokenizer is None:
        return None
    ids = tokenizer.encode(predicted, add_special_tokens=False, limit=served.model.info.context)
    return partial(PromptLookup, ids)


def with_system(messages: Sequence[dict[str, Any]], text: str = "", **rest: Any) -> list[dict[str, Any]]:
    """Append a text, and set other fields, of the leading system message, which is created if absent."""
    first, *others = messages
    if first["role"] != "system":
        return [{"role": "system", "content": text, **rest}, *messages]
    content = "\n\n".join(part for part in (first["content"], text) if part)
    return [first | {"content": content, **rest}, *others]


def template_args(body: ChatRequest) -> dict[str, Any]:
    """Return the arguments of the chat template other than the messages. Raises `RequestError`."""
    args = dict(body.chat_template_kwargs or {})
    for name in ("messages", "tools", "add_generation_prompt"):
        if name in args:
            raise bad_request(f"chat_template_kwargs cannot have {name!r}", param="chat_template_kwargs")
    if body.reasoning_effort is not None:
        args["reasoning_effort"] = body.reasoning_effort
    going_on = bool(body.continue_final_message)
    if going_on and body.add_generation_prompt:
        raise bad_request(
            "continue_final_message and add_generation_prompt exclude each other", param="add_generation_prompt"
        )
    args["add_generation_prompt"] = not going_on if body.add_generation_prompt is None else body.add_generation_prompt
    return args


def as_data(
    served: ServedModel,
    plain: bool,
    messages: Sequence[dict[str, Any]],
    args: dict[str, Any],
    declarations: Sequence[Any] = (),
) -> tuple[list[dict[str, Any]], dict[str, Any], list[Any]]:
    """Convert messages, template arguments and tool declarations for `conversation_ids`.

    With `plain`, control tokens in them are plain text. Raises `GenerationError`.
    """
    contents = served.model.contents
    if contents is None or not plain:
        return list(messages), args, list(declarations)
    return contents.messages(messages), contents.data(args), contents.data(declarations)


def conversation_ids(
    served: ServedModel, messages: list[dict[str, Any]], args: dict[str, Any], going_on: bool = False
) -> list[int]:
    """Return the token ids of a conversation from `as_data`; `going_on` leaves the last message open.

    Raises `GenerationError` if the template refuses it.
    """
    model, limit = served.model, served.model.info.context
    contents = model.contents
    if contents is None or model.loaded.chat_template is None:
        return model.encode(messages, template_args=args, limit=limit)  # raises an error that names the missing part
    ids = rendered_ids(contents, messages, args, limit, going_on=going_on)
    check_ids(ids, model.plan)
    return ids


def rendered_ids(
    contents: MessageContents, messages: list[dict[str, Any]], args: dict[str, Any], limit: int, *, going_on: bool
) -> list[int]:
    """Return the token ids of a conversation, see `conversation_ids`; `limit` is that of `Tokenizer.encode`."""
    render = contents.render_beginning if going_on else contents.render
    return contents.encode(render(messages, **args), limit=limit)
