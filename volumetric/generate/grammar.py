"""Grammars: forms that texts are held to, token by token: JSON schemas, regular expressions, context-free grammars.

What is allowed next is computed by llguidance (https://github.com/guidance-ai/llguidance), an extra dependency.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError
from volumetric.generate.grammar_source import Form, matcher_of, source_of, token_table, written
from volumetric.network import OUTPUT

if TYPE_CHECKING:
    import llguidance

    from volumetric.generate.model import Model

MOST_BYTES: Final = 2**25
"""Memory of grammars that are kept."""
MOST_KEPT: Final = 64
"""Grammars that are kept for the next request."""


class Grammar:
    """A form that is known to be well made for a model; `begin` starts a text of it. `Grammars` makes them."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

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
            reason = self._matcher.get_error().partition("\n")[0][:300]
            raise GenerationError(f"the grammar cannot be followed: {reason}", hint="let fewer rules begin alike")


@dataclass(frozen=True)
class Tokens:
    """The tokens of a model: all that grammars need of it. Equal ones have the same grammars.

    Attributes
    ----------
    tokenizer : what `Tokenizer.to_json` writes
    width : numbers in a row of logits
    ends : ids that end a text
    """

    tokenizer: str
    width: int
    ends: tuple[int, ...]

    @classmethod
    def of(cls, model: Model) -> Tokens:
        """Return the tokens of a model.

        Raises
        ------
        GenerationError : llguidance is not installed, or the model has no tokenizer or no end of texts
        """
        if importlib.util.find_spec("llguidance") is None:
            raise GenerationError(
                "llguidance is not installed", hint="it holds texts to a form: pip install 'volumetric-engine[serve]'"
            )
        tokenizer, ends = model.tokenizer, sorted(model.eos_ids)
        if tokenizer is None or not ends:
            raise GenerationError(f"{model.name} has no {'end-of-text id' if tokenizer else 'tokenizer'}")
        return cls(tokenizer.to_json(), model.plan.values[model.plan.outputs[OUTPUT]].width, tuple(ends))


class Grammars:
    """Makes grammars for a model, or for the tokens of one.

    The table of its tokens is made at once, in 0.3 s for 49,152 of them, in which no other thread runs Python. Grammars
    made last are kept, and handed out again. Not safe for threads, and without bounds of time: what strangers ask for
    is tried by a `volumetric.serve.trials.Trials` first.

    Raises
    ------
    GenerationError : llguidance is not installed, or the model's tokenizer has no form that it reads
    """

    def __init__(self, model: Model | Tokens) -> None:
        tokens = model if isinstance(model, Tokens) else Tokens.of(model)
        self._kept: dict[tuple[str, str], tuple[Grammar, int]] = {}
        try:
            self._table = token_table(tokens.tokenizer, tokens.width, tokens.ends)
        except ValueError as error:
            reason = str(error).partition("\n")[0][:300]
            raise GenerationError(f"texts of this model cannot be held to a form: {reason}") from None

    def json_object(self) -> Grammar:
        """Any JSON object."""
        return self.json_schema({"type": "object"})

    def json_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """JSON by a schema (https://json-schema.org); raises `SpecError` for keywords that are not enforced."""
        return self._grammar("json_schema", schema)

    def regex(self, pattern: str) -> Grammar:
        """Return what texts must match, whole, in the syntax of Rust's ``regex``. Raises `SpecError`."""
        return self._grammar("regex", pattern)

    def choice(self, texts: Sequence[str]) -> Grammar:
        """One of some texts. Raises `SpecError`."""
        return self._grammar("choice", texts)

    def cfg(self, text: str) -> Grammar:
        """A grammar in Lark's syntax, or llama.cpp's GBNF. Raises `SpecError`."""
        return self._grammar("cfg", text)

    def lark(self, text: str) -> Grammar:
        """A grammar in Lark's syntax as llguidance extends it. Raises `SpecError`."""
        return self._grammar("lark", text)

    def kept(self, form: Form, text: str) -> Grammar | None:
        """Return a grammar that was made before, if it is still kept."""
        entry = self._kept.pop((form, text), None)
        if entry is None:
            return None
        self._kept[form, text] = entry
        return entry[0]

    def keep(self, form: Form, text: str, grammar: Grammar, size: int = 0) -> None:
        """Keep a grammar of so many bytes for the next one who asks for it; those used longest ago make room."""
        self._kept[form, text] = grammar, max(size, len(text))
        while len(self._kept) > MOST_KEPT or sum(size for _, size in self._kept.values()) > MOST_BYTES:
            del self._kept[next(iter(self._kept))]

    def made(self, source: str) -> Grammar:
        """Return the grammar of a source that `source_of` wrote. Raises `SpecError`."""
        return Grammar(matcher_of(self._table, source))

    def _grammar(self, kind: str, what: Any) -> Grammar:
        form, text = written(kind, what)
        grammar = self.kept(form, text)
        if grammar is None:
            grammar = self.made(source_of(form, text))
            self.keep(form, text, grammar)
        return grammar
