"""Sources of grammars for llguidance, within limits that its recursion can handle.

llguidance follows chains of references, of rules and of terminals by recursion, with 2 to 16 KiB of stack per step and
no limit: without these limits a schema of 100 kB crashes the process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from volumetric.base.errors import SpecError
from volumetric.generate.gbnf import lark_of

if TYPE_CHECKING:
    import llguidance

Form: TypeAlias = Literal["json_schema", "regex", "choice", "cfg", "lark"]

MOST_CHARACTERS: Final = 2**20
"""Most characters of a grammar."""
MOST_RULES: Final = 1_000
"""Most rules and terminals of a grammar in Lark or GBNF."""
MOST_REFERENCES: Final = 200
"""Longest chain of references between definitions of a schema, without cycles."""
MOST_LEVELS: Final = 100
"""Most nested objects and lists of a schema."""
_SPACE: Final = r"[\x20\x0A\x0D\x09]{0,8}"
"""White space between the parts of JSON: without a limit, small models may generate white space forever."""
_LARK: Final = re.compile(r"^[ \t]*(?:%llguidance\b|start(?:\[[^\]\n]*\])?[ \t]*:(?!:=))", re.MULTILINE)
_RULE: Final = re.compile(r"^[ \t]*[?!]*[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]\n]*\]|\.[0-9]+)*[ \t]*:", re.MULTILINE)
_JSON: Final = re.compile(r"%json[ \t\r\n]*(?=[\[{])")


def bound_whitespace(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with limited white space."""
    return {**schema, "x-guidance": {"whitespace_pattern": _SPACE}}


def form_text(kind: str, what: Any) -> tuple[Form, str]:
    """Return a constraint as text.

    Parameters
    ----------
    kind, what : ``json_schema`` and a mapping, ``choice`` and texts, or ``regex``, ``cfg``, ``lark`` and a text

    Raises
    ------
    SpecError : it is too long, or an empty choice
    """
    form: Form = kind  # pyright: ignore[reportAssignmentType]  (the type depends on `kind`)
    if form == "choice" and (not what or not all(what)):
        raise SpecError("a choice needs texts that are not empty")
    text = (
        json.dumps(bound_whitespace(what))
        if form == "json_schema"
        else json.dumps(list(what))
        if form == "choice"
        else what
    )
    if len(text) > MOST_CHARACTERS:
        raise SpecError(f"the grammar has {len(text)} characters, at most {MOST_CHARACTERS} are allowed")
    return form, text


def source_of(form: Form, text: str) -> str:
    """Return the source of a grammar for llguidance.

    Parameters
    ----------
    form, text : results of `form_text`

    Raises
    ------
    SpecError : it exceeds a limit, or is not a grammar of its kind
    """
    from llguidance import LLMatcher

    if form == "json_schema":
        check_schema(json.loads(text))
        return LLMatcher.grammar_from_json_schema(text)
    if form == "regex":
        return LLMatcher.grammar_from_regex(text)
    if form == "choice":
        text = "start: " + " | ".join(json.dumps(one) for one in json.loads(text))
    elif form == "cfg" and not _LARK.search(text):
        text = lark_of(text, MOST_RULES)
    elif form == "cfg" and sum(1 for _ in _RULE.finditer(text)) > MOST_RULES:
        raise SpecError(f"the grammar has more than {MOST_RULES} rules", hint="merge rules that are used once")
    for schema in () if form == "choice" else _schemas(text):
        check_schema(schema)
    return LLMatcher.grammar_from_lark(text)


def token_table(tokenizer: str, width: int, ends: Sequence[int]) -> llguidance.LLTokenizer:
    """Return llguidance's token table for the fields of `GrammarTokens`. Raises `ValueError`."""
    import llguidance

    return llguidance.LLTokenizer(tokenizer, n_vocab=width, eos_token=list(ends))


def matcher_of(table: llguidance.LLTokenizer, source: str) -> llguidance.LLMatcher:
    """Return llguidance's matcher of a grammar. Raises `SpecError` for a grammar that cannot be enforced."""
    import llguidance

    matcher = llguidance.LLMatcher(table, source, log_level=0)
    check_matcher(matcher)
    return matcher


def check_matcher(matcher: llguidance.LLMatcher) -> None:
    """Raise `SpecError` if a grammar has failed."""
    if matcher.is_error():
        raise SpecError(f"the grammar cannot be enforced: {_cause(matcher.get_error())}")


def _cause(problem: str) -> str:
    """Return the cause from the multi-line error of Rust's ``regex`` and others."""
    first, *rest = problem.strip().split("\n")
    if first.startswith("NoExtension"):
        return "no text matches it"
    causes = [line.removeprefix("error: ") for line in rest if line.startswith("error: ")]
    if causes and first.endswith(":"):
        # The first lines repeat the expression, which may be long; the kind of error follows.
        first = first if len(first) <= 160 else f"{first[:100]}…{first[-50:]}"
        return f"{first} {causes[0]}"[:300]
    return first[:300]


def _schemas(lark: str) -> Iterator[Any]:
    """Yield the schemas within a grammar; invalid JSON is refused later."""
    read = json.JSONDecoder().raw_decode
    end = 0
    while match := _JSON.search(lark, end):
        end = match.end()
        try:
            schema, end = read(lark, end)
        except (ValueError, RecursionError):
            continue
        yield schema


def check_schema(schema: Any) -> None:
    """Raise `SpecError` for a schema that is nested too deeply, or has too long a chain of references."""
    # Post-order over definitions, without recursion: a chain is one longer than the longest that follows it.
    chains: dict[str, int] = {}
    open_: list[tuple[str, list[str]]] = [("#", _references(schema))]
    under_way = {"#"}
    longest = {"#": 0}
    while open_:
        name, rest = open_[-1]
        while rest:
            other = rest.pop()
            if other in chains:
                longest[name] = max(longest[name], chains[other])
            elif other not in under_way:
                if len(open_) > MOST_REFERENCES:
                    raise _too_long()
                under_way.add(other)
                longest[other] = 0
                open_.append((other, _references(_resolve_reference(schema, other))))
                break
        else:
            chains[name] = longest[name] + 1
            if chains[name] > MOST_REFERENCES:
                raise _too_long()
            open_.pop()
            under_way.discard(name)
            if open_:
                above = open_[-1][0]
                longest[above] = max(longest[above], chains[name])


def _too_long() -> SpecError:
    message = f"definitions of the schema refer to each other more than {MOST_REFERENCES} deep"
    return SpecError(message, hint="inline definitions that are used once")


def _references(value: Any) -> list[str]:
    """Return the references of a schema, without its definitions. Raises `SpecError` if it is nested too deeply."""
    references: list[str] = []
    ahead = [(value, 0)]
    while ahead:
        one, level = ahead.pop()
        if level > MOST_LEVELS:
            raise SpecError(f"the schema is nested more than {MOST_LEVELS} deep")
        if isinstance(one, Mapping):
            ref = one.get("$ref")
            if isinstance(ref, str):
                references.append(ref)
            inner = [part for name, part in one.items() if name not in ("$defs", "definitions")]
        else:
            inner = one
        ahead += [(part, level + 1) for part in inner if isinstance(part, (Mapping, list))]
    return list(dict.fromkeys(references))


def _resolve_reference(whole: Any, ref: str) -> Any:
    """Resolve a reference within the schema; None if it does not exist."""
    if not ref.startswith("#"):
        return []
    for step in ref[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(whole, Mapping):
            whole = whole.get(step)
        elif isinstance(whole, Sequence) and not isinstance(whole, str) and step.isdecimal() and len(step) < 10:
            whole = whole[int(step)] if int(step) < len(whole) else None
        else:
            whole = None
    return whole if isinstance(whole, (Mapping, list)) else []
