"""Requests that are valid JSON and cost more than they look: for `serve_fuzz.py`, beside those of `serve_malformed.py`.

Chains of references, rules and terminals, groups within groups, lists of a million items, texts of megabytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
_SAY = {"role": "user", "content": "a"}
_LINKS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
    lambda ref: ref,
    lambda ref: {"type": "array", "items": ref, "minItems": 1, "maxItems": 1},
    lambda ref: {"type": "object", "properties": {"a": ref}, "required": ["a"], "additionalProperties": False},
    lambda ref: {"anyOf": [ref, {"type": "null"}]},
    lambda ref: {"allOf": [ref, {"type": "integer"}]},
)


def _chain(rng: random.Random, count: int) -> dict[str, Any]:
    link, anchored = rng.choice(_LINKS), rng.random() < 0.2
    links: dict[str, Any] = {}
    for i in range(count):
        made = link({"$ref": f"#r{i + 1}" if anchored else f"#/$defs/r{i + 1}"})
        links[f"r{i}"] = {"$anchor": f"r{i}", **made} if anchored else made
    return {"$defs": {**links, f"r{count}": {"type": "integer"}}, "$ref": "#/$defs/r0"}


def _grammar(rng: random.Random, count: int) -> str:
    match rng.randrange(6):
        case 0:
            return "start: r0\n" + "\n".join(f'r{i}: "a" r{i + 1}' for i in range(count)) + f'\nr{count}: "b"'
        case 1:
            return "start: R0\n" + "\n".join(f'R{i}: "a" R{i + 1}' for i in range(count)) + f'\nR{count}: "b"'
        case 2:
            return "root ::= r0\n" + "\n".join(f'r{i} ::= "a" r{i + 1}' for i in range(count)) + f'\nr{count} ::= "b"'
        case 3:
            return "root ::= r0\n" + "\n".join(f'r{i} ::= "a" r{(i + 1) % count}' for i in range(count))
        case 4:
            return rng.choice(("root ::= ", "start: ")) + "(" * count + '"a"' + ")" * count
        case _:
            return "\n" * (100 * count) + rng.choice(("", "start: %json ", "root ::= "))


def killer(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of one."""
    count = rng.choice((50, 150, 250, 1000, 3000, 5000))
    text: dict[str, Any] = {"prompt": "a", "max_tokens": 2}
    match rng.randrange(9):
        case 0 | 1:
            return TEXT, {**text, "guided_json": _chain(rng, count)}
        case 2:
            schema = {**_chain(rng, count), "type": "object"}
            parameters = {"$defs": schema["$defs"], "type": "object", "properties": {"a": {"$ref": schema["$ref"]}}}
            tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
            return CHAT, {"messages": [_SAY], "max_tokens": 2, "tools": [tool], "tool_choice": "required"}
        case 3 | 4:
            return TEXT, {**text, "grammar": _grammar(rng, count)}
        case 5:
            expression = rng.choice(("(" * count + "a" + ")" * count, "(a|b)" * count, "((a|bc){1,1000}d){1,1000}"))
            return TEXT, {**text, "guided_regex": expression}
        case 6:
            return TEXT, {**text, "guided_choice": [f"a{i}" for i in range(10 * count)]}
        case 7:
            letters = "".join(rng.choices("abcdefghijklmnop", k=1000)) * (count // 2)
            return rng.choice(((TEXT, {**text, "prompt": letters}), ("/tokenize", {"prompt": letters})))
        case _:
            many = 100 * count
            lists: tuple[tuple[str, dict[str, Any]], ...] = (
                (TEXT, {**text, "stop_token_ids": [i % 49_000 for i in range(many)]}),
                (TEXT, {**text, "logit_bias": {str(i): 1e-3 for i in range(many // 2)}}),
                (TEXT, {**text, "prompt": [5] * many}),
                (TEXT, {**text, **{f"k{i}": i for i in range(many // 2)}}),
                (CHAT, {"messages": [_SAY] * (many // 4), "max_tokens": 1}),
                ("/detokenize", {"tokens": [500] * many}),
            )
            return rng.choice(lists)


def encoded(rng: random.Random) -> tuple[str, bytes]:
    """Return the path and the bytes of one; every fifth is changed at some places."""
    path, body = killer(rng)
    data = json.dumps(body).encode()
    if rng.random() < 0.2:
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 5)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        data = bytes(changed)
    return path, data
