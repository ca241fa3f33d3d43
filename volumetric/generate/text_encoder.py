"""A model as an encoder: tokenises, pools and classifies texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.encoder import CompiledHead, Encoder, Rows, scaled_to_one
from volumetric.loaders.sentence_modules import SentenceEncoding
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.network import INPUT
from volumetric.run.text_pooling import Pooling

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.loaders import LoadedModel
    from volumetric.run.device import RunOptions

MOST: Final = 4096
"""Most texts that are tokenised at a time."""


class TextEncoder:
    """A model as an encoder, created on first use."""

    def __init__(self, model: CompiledModel) -> None:
        model.require_tokens()
        if model.tokenizer is None:
            raise GenerationError(f"{model.name} has no tokenizer", hint="use model.logits(ids) with token ids")
        self.name: str = model.name
        self.loaded: LoadedModel = model.loaded
        self.tokenizer: Tokenizer = model.tokenizer
        self.sentences: SentenceEncoding = model.loaded.sentences or SentenceEncoding()
        self.encoder: Encoder = Encoder(model.loaded, model.executable)
        self.options: RunOptions = model.executable.options
        self._device = model.device
        limits = (self.sentences.max_length, self.tokenizer.max_length if self.sentences.max_length is None else None)
        self.limit: int = min(limit for limit in (self.options.context, *limits) if limit)

    @cached_property
    def dense(self) -> CompiledHead | None:
        """Dense layers after the pooling of embeddings."""
        return None if self.sentences.dense is None else CompiledHead(self.sentences.dense, self._device, self.options)

    @cached_property
    def judge(self) -> CompiledHead:
        """The classification head of the checkpoint."""
        if self.loaded.head is None:
            raise GenerationError(
                f"{self.name} has no classification head",
                hint="use a checkpoint of …ForSequenceClassification; model.embed(texts) computes embeddings",
            )
        return CompiledHead(self.loaded.head, self._device, self.options)

    def tokens(self, texts: Sequence[str | tuple[str, str]], limit: int) -> list[Rows]:
        """Return the tokens of texts or pairs. Raises `GenerationError` for one without tokens."""
        token_rows: list[Rows] = []
        for start in range(0, len(texts), MOST):
            some = [self.encoder.rows(one) for one in self.tokenizer.encode_texts(texts[start : start + MOST], limit)]
            for i, rows in enumerate(some, start):
                if not len(rows[INPUT]):
                    raise GenerationError(
                        f"text {i} has no tokens", hint="this tokenizer does not add special tokens to an empty text"
                    )
            token_rows += some
        return token_rows

    def length(self, max_length: int | None) -> int:
        """Return the most tokens of a text."""
        if max_length is None:
            return self.limit
        if type(max_length) is not int or not 1 <= max_length <= self.options.context:
            raise SpecError(
                f"max_length must be 1 to {self.options.context}, got {max_length!r}",
                hint="for more, open the model with context=N, up to its training length",
            )
        return max_length

    def prompt(self, prompt: str | None, name: str | None) -> str:
        """Return the prompt that precedes each text."""
        if prompt is not None:
            return prompt
        name = self.sentences.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.sentences.prompts:
            known = ", ".join(map(repr, self.sentences.prompts)) or "none"
            raise SpecError(f"{self.name} has no prompt {name!r}", hint=f"its prompts: {known}; or pass prompt=TEXT")
        return self.sentences.prompts[name]

    def embed(
        self, texts: Sequence[str], *, pooling: Sequence[Pooling], normalise: bool, prompt: str, limit: int
    ) -> F32Array:
        """Return the embeddings of `texts`."""
        rows = self.tokens(self._with_prompt(texts, prompt), limit)
        skipped = 0
        if prompt and not self.sentences.include_prompt:
            [alone] = self.tokens(self._with_prompt([""], prompt), limit)
            ends = self.tokenizer.token_id(self.tokenizer.special_tokens.get("sep_token"))
            skipped = len(alone[INPUT]) - (int(alone[INPUT][-1]) == ends)
        embeddings = self.encoder.pooled(rows, pooling, skipped)
        if self.dense is not None:
            embeddings = self.dense(embeddings)
        if not np.isfinite(embeddings).all():
            at = int(np.flatnonzero(~np.isfinite(embeddings).all(1))[0])
            raise GenerationError(
                f"the embedding of text {at} contains NaN or infinity", hint="the weights may be damaged"
            )
        return scaled_to_one(embeddings) if normalise else embeddings

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text with the default prompt, without truncation."""
        rows = self.tokens(self._with_prompt(texts, self.prompt(None, None)), sys.maxsize)
        return [len(row[INPUT]) for row in rows]

    def _with_prompt(self, texts: Sequence[str], prompt: str) -> list[str]:
        """Return the texts with the prompt."""
        lower = self.sentences.lower_case
        return [(prompt + text).lower() if lower else prompt + text for text in texts]

    def head_outputs(self, texts: Sequence[str | tuple[str, str]], limit: int) -> F32Array:
        """Return the outputs of the head, ``[n, classes]``."""
        judge, head = self.judge, self.loaded.head
        modes: tuple[Pooling, ...] = ("cls",) if head is None else (head.pooling,)
        outputs = judge(self.encoder.pooled(self.tokens(texts, limit), modes))
        if not np.isfinite(outputs).all():
            raise GenerationError("the outputs of the head contain NaN or infinity", hint="the weights may be damaged")
        return outputs

    def close(self) -> None:
        """Free the resources that the model does not own."""
        for judge in (self.__dict__.get("dense"), self.__dict__.get("judge")):
            if judge is not None:
                judge.close()
        self.encoder.close()
