"""Grammars: forms that texts are held to, token by token: JSON schemas, regular expressions, context-free grammars.

What is allowed next is computed by llguidance (https://github.com/guidance-ai/llguidance), an extra dependency.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric._typing import F32Array
from volumetric.errors import GenerationError, SpecError
from volumetric.network import OUTPUT

if TYPE_CHECKING:
    import llguidance

    from volumetric.generate.model import Model

MOST_BYTES: Final = 2**20
"""Length of a grammar, and of all that are kept."""
MOST_KEPT: Final = 64
"""Grammars that are kept for the next request."""
_SPACE: Final = r"[\x20\x0A\x0D\x09]{0,8}"
"""White space between the parts of JSON: without a bound, small models may write nothing else for ever."""


class Grammar:
    """A form that is known to be well made for a model; `begin` starts a text of it. `Grammars` makes them."""

    def __init__(self, tokenizer: llguidance.LLTokenizer, text: str) -> None:
        import llguidance

        self._matcher = llguidance.LLMatcher(tokenizer, text)

    def begin(self) -> GrammarConstraint:
        """Return the constraint of a new text."""
        return GrammarConstraint(self._matcher.deep_copy())  # a hundredth of the time that it took to make


class GrammarConstraint:
    """One text that follows a grammar."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self._check()

    def allow(self, logits: F32Array) -> F32Array:
        """Return logits in which tokens that cannot come next are -inf; where the form is complete, all but the end."""
        mask = self._matcher.compute_bitmask()
        self._check()
        allowed = np.unpackbits(np.frombuffer(mask, np.uint8), count=logits.size, bitorder="little")
        return np.where(allowed.view(np.bool_), logits, np.float32(-np.inf))

    def take(self, token: int) -> None:
        """Go on by a token."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            told = self._matcher.get_error().partition("\n")[0][:300]
            raise GenerationError(f"the grammar cannot be followed: {told}", hint="make it simpler")


class Grammars:
    """Makes grammars for a model. The table of its tokens is made once, in about a second.

    Those made last are kept, and handed out again. Not safe for threads.

    Raises
    ------
    GenerationError : llguidance is not installed, or the model's tokenizer has no form that it reads
    """

    def __init__(self, model: Model) -> None:
        if importlib.util.find_spec("llguidance") is None:
            raise GenerationError(
                "llguidance is not installed", hint="it holds texts to a form: pip install 'volumetric-engine[serve]'"
            )
        import llguidance

        tokenizer, ends = model.tokenizer, sorted(model.eos_ids)
        if tokenizer is None or not ends:
            raise GenerationError(f"{model.name} has no {'end-of-text id' if tokenizer else 'tokenizer'}")
        self._kept: dict[tuple[str, str], Grammar] = {}
        width = model.plan.values[model.plan.outputs[OUTPUT]].width
        try:
            self._tokenizer = llguidance.LLTokenizer(tokenizer.to_json(), n_vocab=width, eos_token=ends)
        except ValueError as error:
            told = str(error).partition("\n")[0][:300]
            raise GenerationError(f"texts of {model.name} cannot be held to a form: {told}") from None

    def json_object(self) -> Grammar:
        """Any JSON object."""
        return self.json_schema({"type": "object"})

    def json_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """JSON by a schema (https://json-schema.org); raises `SpecError` for keywords that are not enforced."""
        return self._grammar("json_schema", json.dumps(spaced(schema)))

    def regex(self, pattern: str) -> Grammar:
        """Return what texts must match, whole, in the syntax of Rust's ``regex``. Raises `SpecError`."""
        return self._grammar("regex", pattern)

    def choice(self, texts: Sequence[str]) -> Grammar:
        """One of some texts. Raises `SpecError`."""
        if not texts or not all(texts):
            raise SpecError("a choice needs texts that are not empty")
        return self._grammar("choice", json.dumps(list(texts)))

    def cfg(self, text: str) -> Grammar:
        """A grammar in Lark's syntax, or llama.cpp's GBNF. Raises `SpecError`."""
        return self._grammar("grammar", text)

    def lark(self, text: str) -> Grammar:
        """A grammar in Lark's syntax as llguidance extends it. Raises `SpecError`."""
        return self._grammar("lark", text)

    def _grammar(self, form: str, text: str) -> Grammar:
        if len(text) > MOST_BYTES:
            raise SpecError(f"the grammar has {len(text)} characters, at most {MOST_BYTES} are read")
        found = self._kept.pop((form, text), None)
        if found is None:
            found = self._made(form, text)
        self._kept[form, text] = found
        while len(self._kept) > MOST_KEPT or sum(len(one) for _, one in self._kept) > MOST_BYTES:
            del self._kept[next(iter(self._kept))]  # used longest ago
        return found

    def _made(self, form: Any, text: str) -> Grammar:
        import llguidance

        try:
            grammar = llguidance.grammar_from(form, text)
            problem = llguidance.LLMatcher.validate_grammar(grammar, self._tokenizer)
        except (ValueError, RecursionError) as error:
            problem = str(error)
        else:
            if not problem:
                return Grammar(self._tokenizer, grammar)
        raise SpecError(f"the grammar cannot be enforced: {_cause(problem)}")


def _cause(problem: str) -> str:
    """Return the lines that tell what is wrong; regular expressions are shown between the first and the last one."""
    first, *others = (line.strip() for line in problem.strip().splitlines())
    return " ".join([first, *(line for line in others if line.startswith("error:"))])[:300]


def spaced(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with a bound on white space."""
    return {**schema, "x-guidance": {"whitespace_pattern": _SPACE}}
