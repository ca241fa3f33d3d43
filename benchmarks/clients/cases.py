"""Cases: what the script of a client tries, what each answer must be, and how `serve_clients.py` is told of it.

A script of a client is run as `python SCRIPT URL ANSWER`: the base URL of a server, and what its model says to
`QUESTION`, greedily, with at most `TOKENS` tokens. It prints one line of JSON for each case. Only the standard library
and pydantic, on which every client for Python stands, are imported here.
"""

# Annotations are evaluated here: some clients read those of `weather` without the names of this module.
import asyncio
import inspect
import itertools
import json
import math
import sys
import traceback
import urllib.request
from collections.abc import Callable
from typing import Any, Literal

import pydantic

URL, ANSWER = [*sys.argv, "", ""][1:3]
CHAT, ENCODER = "chat", "encoder"
"""Names of the models."""
QUESTION = "What is the weather in Rome? Answer in one word."
TEXTS = ["the cat", "a dog"]
TOKENS = 80
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": TOKENS}
ASK: dict[str, Any] = {"model": CHAT, "messages": MESSAGES, **GREEDY}


class Weather(pydantic.BaseModel):
    """Tells the weather of a town."""

    model_config = pydantic.ConfigDict(extra="forbid", title="weather")

    town: Literal["Rome", "Paris"]
    days: Literal[1, 2, 3]


class Person(pydantic.BaseModel):
    """A person."""

    model_config = pydantic.ConfigDict(extra="forbid")

    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)


def weather(town: Literal["Rome", "Paris"], days: Literal[1, 2, 3]) -> str:
    """Tell the weather of a town."""
    CALLS.append({"town": town, "days": days})
    return "sunny"


CALLS: list[dict[str, Any]] = []
"""Arguments of the calls of `weather`, for clients that call functions themselves."""
FUNCTION: dict[str, Any] = {
    "name": "weather",
    "description": "Tells the weather of a town.",
    "parameters": Weather.model_json_schema(),
}
TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
STRICT: dict[str, Any] = {"type": "function", "function": FUNCTION | {"strict": True}}
CALLED: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False}
FORM: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "person", "schema": Person.model_json_schema(), "strict": True},
}


def check_answer(text: str | None) -> None:
    """An answer to `QUESTION` must be the one that a plain request has."""
    if text is None or text.strip() != ANSWER.strip():
        raise AssertionError(f"{text!r} instead of {ANSWER!r}")


def check_call(name: str | None, arguments: Any) -> None:
    """A call must be one of `weather` with arguments of its schema, as JSON or as what that says."""
    if name != "weather":
        raise AssertionError(f"a call of {name!r}")
    Weather.model_validate_json(arguments) if isinstance(arguments, str) else Weather.model_validate(arguments)


def check_function_called() -> None:
    """`weather` must have been called once since this was asked last."""
    calls = list(CALLS)
    CALLS.clear()
    if len(calls) != 1:
        raise AssertionError(f"{len(calls)} calls: {calls}")
    check_call("weather", calls[0])


def check_person(told: Any) -> None:
    """A structured answer must be a person, as JSON, as what that says, or as an object."""
    if isinstance(told, str):
        Person.model_validate_json(told)
    elif not isinstance(told, Person):
        Person.model_validate(told)


def check_equal(one: Any, other: Any) -> None:
    """Two ways to the same answer must be the same."""
    if one != other:
        raise AssertionError(f"{one!r} is not {other!r}")


def check_vectors(vectors: Any) -> None:
    """Vectors of `TEXTS` must be those that a plain request has."""
    body = json.dumps({"model": ENCODER, "input": TEXTS}).encode()
    request = urllib.request.Request(f"{URL}/embeddings", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        expected = [one["embedding"] for one in json.load(answer)["data"]]
    check_equal([len(vector) for vector in vectors], [len(vector) for vector in expected])
    for one, other in zip(itertools.chain(*vectors), itertools.chain(*expected), strict=True):
        if not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-7):
            raise AssertionError(f"{one} is not {other}")


Case = Callable[[], Any]
_CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Add a function, plain or asynchronous, that raises an error where the client or the server went wrong."""

    def add(tried: Case) -> Case:
        _CASES[name] = tried
        return tried

    return add


def run_cases() -> None:
    """Try all cases in the order in which they were added, and print what became of each."""
    for name, tried in _CASES.items():
        wrong = None
        try:
            if inspect.iscoroutine(waits := tried()):
                asyncio.run(waits)
        except Exception as error:
            traceback.print_exc()
            wrong = f"{type(error).__name__}: {error}"
        print(json.dumps({"case": name, "wrong": wrong}), flush=True)
