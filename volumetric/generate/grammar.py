"""Grammars that constrain generation: JSON schemas, regular expressions, context-free grammars.

llguidance (https://github.com/guidance-ai/llguidance), an extra dependency, computes the allowed tokens.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError
from volumetric.generate.grammar_source import Form, form_text, matcher_of, source_of, token_table
from volumetric.network import OUTPUT

if TYPE_CHECKING:
    import llguidance

    from volumetric.generate.model import Model

MOST_BYTES: Final = 2**25
"""Most memory of cached grammars."""
MOST_KEPT: Final = 64
"""Most cached grammars."""


class Grammar:
    """A compiled grammar for a model, see `Grammars`; `begin` starts a text."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    def begin(self) -> GrammarConstraint:
        """Return the constraint of a new text."""
        return GrammarConstraint(self._matcher.deep_copy())  # takes a hundredth of the time of compiling it


class GrammarConstraint:
    """Constraint of one text to a grammar."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self._check()

    def allow(self, logits: F32Array) -> F32Array:
        """Return logits in which forbidden tokens are -inf: all but the end tokens once the text is complete."""
        mask = self._matcher.compute_bitmask()
        self._check()
        allowed = np.unpackbits(np.frombuffer(mask, np.uint8), count=logits.size, bitorder="little")
        return np.where(allowed.view(np.bool_), logits, np.float32(-np.inf))

    def take(self, token: int) -> None:
        """Advance by a token."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0][:300]
            raise GenerationError(
                f"the grammar cannot be followed: {reason}", hint="reduce the number of rules with the same beginning"
            )


@dataclass(frozen=True)
class GrammarTokens:
    """The tokens of a model, as needed by grammars. Equal tokens can share grammars.

    Attributes
    ----------
    tokenizer : output of `Tokenizer.to_json`
    width : size of a row of logits
    ends : ids that end a text
    """

    tokenizer: str
    width: int
    ends: tuple[int, ...]

    @classmethod
    def of(cls, model: Model) -> GrammarTokens:
        """Return the tokens of a model.

        Raises
        ------
        GenerationError : llguidance is not installed, or the model has no tokenizer or no end-of-text id
        """
        if importlib.util.find_spec("llguidance") is None:
            raise GenerationError(
                "llguidance is not installed",
                hint="constrained generation needs it: pip install 'volumetric-engine[serve]'",
            )
        tokenizer, ends = model.tokenizer, sorted(model.eos_ids)
        if tokenizer is None or not ends:
            raise GenerationError(f"{model.name} has no {'end-of-text id' if tokenizer else 'tokenizer'}")
        return cls(tokenizer.to_json(), model.plan.values[model.plan.outputs[OUTPUT]].width, tuple(ends))


class Grammars:
    """Compiler of grammars for a model, or for its tokens.

    The constructor builds the token table, in 0.3 s for 49,152 tokens, which blocks all Python threads. Recent grammars
    are cached. It is not thread-safe, and has no time limits: `volumetric.serve.grammar_processes.GrammarTrials` first
    tries untrusted grammars in another process.

    Raises
    ------
    GenerationError : llguidance is not installed, or does not support the model's tokenizer
    """

    def __init__(self, model: Model | GrammarTokens) -> None:
        tokens = model if isinstance(model, GrammarTokens) else GrammarTokens.of(model)
        self._kept: dict[tuple[str, str], tuple[Grammar, int]] = {}
        try:
            self._table = token_table(tokens.tokenizer, tokens.width, tokens.ends)
        except ValueError as error:
            reason = str(error).partition("\n")[0][:300]
            raise GenerationError(f"texts of this model cannot be constrained: {reason}") from None

    def json_object(self) -> Grammar:
        """Return the grammar of any JSON object."""
        return self.json_schema({"type": "object"})

    def json_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """Return the grammar of a JSON schema (https://json-schema.org). Raises `SpecError` for other keywords."""
        return self._grammar("json_schema", schema)

    def regex(self, pattern: str) -> Grammar:
        """Return the grammar of texts that fully match a pattern of Rust's ``regex``. Raises `SpecError`."""
        return self._grammar("regex", pattern)

    def choice(self, texts: Sequence[str]) -> Grammar:
        """Return the grammar of a choice of texts. Raises `SpecError`."""
        return self._grammar("choice", texts)

    def cfg(self, text: str) -> Grammar:
        """Compile a grammar in Lark's syntax, or llama.cpp's GBNF. Raises `SpecError`."""
        return self._grammar("cfg", text)

    def lark(self, text: str) -> Grammar:
        """Compile a grammar in llguidance's extension of Lark. Raises `SpecError`."""
        return self._grammar("lark", text)

    def cached_grammar(self, form: Form, text: str) -> Grammar | None:
        """Return a cached grammar, or None."""
        entry = self._kept.pop((form, text), None)
        if entry is None:
            return None
        self._kept[form, text] = entry
        return entry[0]

    def cache_grammar(self, form: Form, text: str, grammar: Grammar, size: int = 0) -> None:
        """Cache a grammar of `size` bytes; the least recently used ones are dropped if needed."""
        self._kept[form, text] = grammar, max(size, len(text))
        while len(self._kept) > MOST_KEPT or sum(size for _, size in self._kept.values()) > MOST_BYTES:
            del self._kept[next(iter(self._kept))]

    def compile_source(self, source: str) -> Grammar:
        """Compile a source of `source_of`. Raises `SpecError`."""
        return Grammar(matcher_of(self._table, source))

    def _grammar(self, kind: str, what: Any) -> Grammar:
        form, text = form_text(kind, what)
        grammar = self.cached_grammar(form, text)
        if grammar is None:
            grammar = self.compile_source(source_of(form, text))
            self.cache_grammar(form, text, grammar)
        return grammar
