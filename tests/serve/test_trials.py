"""Grammars of strangers: what would break the server, or keep it busy for ever, breaks a copy of a small process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from tests.generate.byte_tokens import byte_tokens
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate import grammar_trial
from volumetric.generate.grammar import Grammar, Grammars
from volumetric.serve import grammar_processes
from volumetric.serve.grammar_processes import GrammarTrials

TOO_LONG = "refer to each other more than 200 deep"


def chain(count: int, link: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
    """Return a schema of definitions that each refer to the next one."""
    links = {f"r{i}": link({"$ref": f"#/$defs/r{i + 1}"}) for i in range(count)}
    return {"$defs": {**links, f"r{count}": {"type": "integer"}}, "$ref": "#/$defs/r0"}


def arrays(ref: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": ref, "minItems": 1, "maxItems": 1}


def objects(ref: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": ref}, "required": ["a"], "additionalProperties": False}


def tried(what: Callable[[GrammarTrials], Coroutine[Any, Any, Any]]) -> Any:
    """Return what comes of something with trials, which end behind it."""

    async def run() -> Any:
        tokens = byte_tokens()
        made = GrammarTrials(Grammars(tokens), tokens)
        try:
            return await what(made)
        finally:
            await made.close()

    return asyncio.run(run())


def refused(cases: Mapping[str, tuple[str, Any, str]]) -> None:
    """Hold trials to refusing all cases, and to making a grammar after each."""

    async def run(trials: GrammarTrials) -> None:
        for name, (kind, what, why) in cases.items():
            with pytest.raises(SpecError) as caught:
                await trials.grammar(kind, what)
            assert why in str(caught.value), (name, str(caught.value))
            assert isinstance(await trials.grammar("regex", f"a{name}"), Grammar)

    tried(run)


@pytest.mark.thorough
def test_chains_nesting_and_rules_have_bounds():
    rules = "\n".join(f'r{i}: "a" r{i + 1}' for i in range(5000))
    terminals = "\n".join(f'R{i}: "a" R{i + 1}' for i in range(5000))
    gbnf = "\n".join(f'r{i} ::= "a" r{i + 1}' for i in range(5000))
    ring = "\n".join(f'r{i} ::= "a" r{(i + 1) % 1400}' for i in range(1400))
    deep: Any = {"type": "integer"}
    for _ in range(400):
        deep = {"type": "array", "items": deep}
    many = "the grammar has more than 1000 rules"
    refused(
        {
            "arrays": ("json_schema", chain(2000, arrays), TOO_LONG),
            "references": ("json_schema", chain(3000, lambda ref: ref), TOO_LONG),
            "objects": ("json_schema", chain(3000, objects), TOO_LONG),
            "any": ("json_schema", chain(2000, lambda ref: {"anyOf": [ref, {"type": "null"}]}), TOO_LONG),
            "all": ("json_schema", chain(5000, lambda ref: {"allOf": [ref, {"type": "integer"}]}), TOO_LONG),
            "within": ("cfg", f"start: %json {json.dumps(chain(2000, arrays))}", TOO_LONG),
            "nested": ("json_schema", deep, "nested more than 100 deep"),
            "rules": ("cfg", f'start: r0\n{rules}\nr5000: "b"', many),
            "terminals": ("cfg", f'start: R0\n{terminals}\nR5000: "b"', many),
            "gbnf": ("cfg", f'root ::= r0\n{gbnf}\nr5000 ::= "b"', many),
            "ring": ("cfg", f"root ::= r0\n{ring}", many),
            "groups": ("cfg", f"root ::= {'(' * 5000}", "nested more than 100 deep"),
            "lark groups": ("cfg", f'start: {"(" * 5000}"a"{")" * 5000}', "too deeply nested"),
            "expression": ("regex", "(" * 5000 + "a" + ")" * 5000, "exceed the maximum number of nested"),
            "lines": ("cfg", "\n" * 1_000_000, "no rule 'root'"),
            "long": ("regex", "a" * 2**21, "characters"),
            "nothing": ("json_schema", {"$ref": "#"}, "no text matches it"),
            "cause": ("regex", "(?=a)b", "look-around"),
        }
    )


@pytest.mark.thorough
def test_what_no_bound_foresees_breaks_a_copy_alone():
    anchors = {f"r{i}": {"$anchor": f"r{i}", "type": "array", "items": {"$ref": f"#r{i + 1}"}} for i in range(4000)}
    anchored = {"$defs": {**anchors, "r4000": {"$anchor": "r4000", "type": "integer"}}, "$ref": "#r0"}
    # The tools of a request are Lark of our own, which may have more rules.
    terminals = "\n".join(f'R{i}: "a" R{i + 1}' for i in range(8000))
    refused(
        {
            "stack": ("json_schema", anchored, "nested, or refer to each other, too deeply"),
            "terminals": ("lark", f'start: R0\n{terminals}\nR8000: "b"', "too deeply"),
            "time": ("choice", [f"a{i}" for i in range(80_000)], "more than 1 s of CPU time"),
        }
    )


def test_what_has_passed_is_made_here_and_kept():
    async def run(trials: GrammarTrials) -> None:
        for what in (chain(150, arrays), chain(150, objects)):
            first, second = await asyncio.gather(*(trials.grammar("json_schema", what) for _ in range(2)))
            assert first is second is await trials.grammar("json_schema", what)

    tried(run)


def test_a_process_that_is_gone_is_started_anew():
    async def run(trials: GrammarTrials) -> None:
        await trials.grammar("regex", "a")
        process = trials._trying._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        waiting = asyncio.ensure_future(trials.grammar("regex", "b"))
        while not trials._trying._waiting:
            await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(GenerationError, match="has ended"):
            await waiting
        assert isinstance(await trials.grammar("regex", "c"), Grammar)

    tried(run)


def test_a_trial_that_nobody_waits_for_is_ended():
    async def run(trials: GrammarTrials) -> None:
        slow = {"kind": "choice", "what": [f"a{i}" for i in range(80_000)]}
        both = [asyncio.ensure_future(trials.grammar(**slow)) for _ in range(2)]
        while not trials._trying._waiting:
            await asyncio.sleep(0)
        both[0].cancel()
        await asyncio.sleep(0)
        assert trials._trying._waiting  # the other one waits still
        both[1].cancel()
        for one in both:
            with contextlib.suppress(asyncio.CancelledError):
                await one
        while trials._jobs:
            await asyncio.sleep(0)
        assert not trials._trying._waiting
        assert isinstance(await trials.grammar("regex", "a"), Grammar)

    tried(run)


def test_a_grammar_that_waits_is_refused_for_its_time(monkeypatch: pytest.MonkeyPatch):
    """Not for the way in which its copy is ended, and whatever is asked behind it is answered."""
    run = "import volumetric.generate.grammar_trial as t; t.WALL_SECONDS = 0.25; t.PROCESSOR_SECONDS = 60.0; t.main()"
    monkeypatch.setattr(grammar_processes, "_RUN", f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); {run}")
    refused({"clock": ("choice", [f"a{i}" for i in range(80_000)], "it took more than 0.25 s")})


def test_systems_that_cannot_fork_try_grammars_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    """The same messages, in the process itself."""
    tokens = byte_tokens()
    first = {"tokenizer": tokens.tokenizer, "width": tokens.width, "ends": tokens.ends}
    asked = [first, {"id": 1, "form": "regex", "text": "a"}, {"id": 2}, {"id": 3, "form": "regex", "text": "("}, None]
    answers: list[Any] = []
    messages = iter(asked)
    monkeypatch.delattr(os, "fork")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(grammar_trial, "_read_message", lambda _: next(messages))
    monkeypatch.setattr(grammar_trial, "_write", lambda _, data: answers.append(json.loads(data[4:])))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    grammar_trial.main()
    assert [answer["id"] for answer in answers] == [1, 3]
    assert "source" in answers[0]
    assert "unclosed group" in answers[1]["problem"]
