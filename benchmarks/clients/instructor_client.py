"""instructor: structured answers by each of its modes that OpenAI's interface has, whole and in pieces."""

from __future__ import annotations

from typing import Any

import instructor
import openai
from cases import ASK, CHAT, MESSAGES, QUESTION, TOKENS, URL, Person, case, check_equal, run_cases

PLAIN: dict[str, Any] = ASK | {"max_retries": 0}


def client(mode: instructor.Mode) -> Any:
    """Return a client of a mode."""
    return instructor.from_openai(openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120), mode=mode)


def add(name: str, mode: instructor.Mode) -> None:
    """Add the cases of a mode."""

    @case(f"{name}, plain")
    def plain() -> None:
        check_equal(type(client(mode).chat.completions.create(**PLAIN, response_model=Person)), Person)

    @case(f"{name}, streamed")
    def streamed() -> None:
        whole = client(mode).chat.completions.create(**PLAIN, response_model=Person)
        *_, last = client(mode).chat.completions.create_partial(**PLAIN, response_model=Person)
        check_equal(last.model_dump(), whole.model_dump())


add("tool", instructor.Mode.TOOLS)
add("strict tool", instructor.Mode.TOOLS_STRICT)
add("JSON schema", instructor.Mode.JSON_SCHEMA)


@case("plain with its completion")
def with_completion() -> None:
    found, answer = client(instructor.Mode.TOOLS).chat.completions.create_with_completion(**PLAIN, response_model=Person)
    check_equal(type(found), Person)
    check_equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@case("list, streamed")
def listed() -> None:
    ask = PLAIN | {"max_tokens": 2 * TOKENS}
    first = next(iter(client(instructor.Mode.TOOLS).chat.completions.create_iterable(**ask, response_model=Person)))
    check_equal(type(first), Person)


@case("asynchronous, plain")
async def asynchronous() -> None:
    async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120) as plain:
        asking: Any = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
        check_equal(type(await asking.chat.completions.create(**PLAIN, response_model=Person)), Person)


@case("responses: tool, plain")
def responses() -> None:
    asking = client(instructor.Mode.RESPONSES_TOOLS)
    ask = {"model": CHAT, "temperature": 0.0, "max_output_tokens": TOKENS, "max_retries": 0}
    check_equal(type(asking.responses.create(**ask, input=QUESTION, response_model=Person)), Person)
    check_equal(type(asking.responses.create(**ask, input=MESSAGES, response_model=Person)), Person)


run_cases()
