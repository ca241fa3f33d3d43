"""instructor: structured answers by each of its modes that OpenAI's interface has, whole and in pieces."""

from __future__ import annotations

from typing import Any

import instructor
import openai
from cases import ASK, CHAT, MESSAGES, QUESTION, TOKENS, URL, Person, case, check_equal, check_person, run_cases

PLAIN: dict[str, Any] = ASK | {"max_retries": 0}


def client(mode: instructor.Mode) -> Any:
    """Return a client of a mode."""
    return instructor.from_openai(openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120), mode=mode)


def add(name: str, mode: instructor.Mode) -> None:
    """Add the cases of a mode."""

    @case(f"{name}, plain")
    def plain() -> None:
        check_person(client(mode).chat.completions.create(**PLAIN, response_model=Person))

    @case(f"{name}, streamed")
    def streamed() -> None:
        *_, last = client(mode).chat.completions.create_partial(**PLAIN, response_model=Person)
        check_person(last.model_dump())  # of another class, all of whose fields may be None


add("tool", instructor.Mode.TOOLS)
add("strict tool", instructor.Mode.TOOLS_STRICT)
add("JSON schema", instructor.Mode.JSON_SCHEMA)


@case("plain with its completion")
def with_completion() -> None:
    found, answer = client(instructor.Mode.TOOLS).chat.completions.create_with_completion(
        **PLAIN, response_model=Person
    )
    check_person(found)
    check_equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@case("list, streamed")
def listed() -> None:  # without strict this client says that the list may be left out, and any field be there
    ask = PLAIN | {"max_tokens": 2 * TOKENS}
    first = next(
        iter(client(instructor.Mode.TOOLS_STRICT).chat.completions.create_iterable(**ask, response_model=Person))
    )
    check_person(first)


@case("asynchronous, plain")
async def asynchronous() -> None:
    async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120) as plain:
        asking: Any = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
        check_person(await asking.chat.completions.create(**PLAIN, response_model=Person))


@case("responses: tool, plain")
def responses() -> None:
    asking = client(instructor.Mode.RESPONSES_TOOLS)
    ask = {"model": CHAT, "temperature": 0.0, "max_output_tokens": TOKENS, "max_retries": 0}
    check_person(asking.responses.create(**ask, input=QUESTION, response_model=Person))
    check_person(asking.responses.create(**ask, input=MESSAGES, response_model=Person))


run_cases()
