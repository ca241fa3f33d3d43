"""Methods of encoder models: embeddings, scores of pairs, classes of texts, masked tokens."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.compiled_model import CompiledModel
from volumetric.graph.numeric.activations import sigmoid
from volumetric.graph.numeric.softmax import softmax

if TYPE_CHECKING:
    from volumetric.generate.masked_tokens import FilledMask
    from volumetric.generate.text_encoder import TextEncoder
    from volumetric.run.text_pooling import Pooling

logger: logging.Logger = logging.getLogger(__name__)


def check_texts(texts: object, what: str = "texts") -> list[str]:
    """Return a list of texts. Raises `GenerationError`."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
        raise GenerationError(f"{what} must be a list of texts, got {type(texts).__name__}", hint='such as ["a", "b"]')
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise GenerationError(f"{what}[{i}] must be text, got {type(text).__name__}")
        half = next((char for char in text if "\ud800" <= char <= "\udfff"), None) if not text.isascii() else None
        if half is not None:
            raise GenerationError(f"{what}[{i}] contains {half!a}, half of a surrogate pair")
    return list(texts)


def check_pooling(pooling: str | Sequence[str]) -> tuple[Pooling, ...]:
    """Return poolings. Raises `SpecError`."""
    from volumetric.loaders.sentence_modules import POOLINGS

    modes = (pooling,) if isinstance(pooling, str) else tuple(pooling)
    known = tuple(mode for mode in POOLINGS for one in modes if one == mode)
    if not modes or len(known) != len(modes):
        raise SpecError(f"unknown pooling {pooling!r}", hint="one of " + ", ".join(POOLINGS))
    return tuple(mode for one in modes for mode in POOLINGS if mode == one)


class EncoderMethods(CompiledModel):
    """Methods of `Model` for encoders."""

    @cached_property
    def text_encoder(self) -> TextEncoder:
        """The model as an encoder, created on first use."""
        from volumetric.generate.text_encoder import TextEncoder  # not needed by models that generate

        return TextEncoder(self)

    def close_encoder(self) -> None:
        """Free the encoder."""
        if "text_encoder" in self.__dict__:
            self.text_encoder.close()

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        pooling: str | Sequence[str] | None = None,
        normalise: bool | None = None,
        max_length: int | None = None,
    ) -> F32Array:
        """Return an embedding for each text, float32 ``[n, d]``, as in sentence-transformers.

        Texts of different lengths are batched without padding; the result has the order of `texts`. Pooling, length,
        normalisation, prompts and dense layers come from the model's files (modules.json and the files it names).
        Without them, hidden states are averaged and not normalised, with a warning.

        Parameters
        ----------
        texts : a list, which may be empty; texts may be empty, too
        prompt : text that precedes each text
        prompt_name : name of a prompt in the model's files; None: their default prompt
        pooling : ``"cls"``, ``"max"``, ``"mean"``, ``"mean_sqrt_len_tokens"``, ``"weightedmean"``, ``"lasttoken"``, or
            several, which are concatenated; None: from the files
        normalise : scale embeddings to length 1; None: from the files
        max_length : tokens after which a text is truncated, with the prompt and special tokens; None: from the files

        Raises
        ------
        GenerationError : the model has no tokenizer, a text is not text, or embeddings are NaN
        SpecError : an option is out of range, or `prompt_name` is unknown
        """
        encoder, checked = self.text_encoder, check_texts(texts)
        if pooling is None and encoder.loaded.sentences is None:
            _warn_once(encoder.name)
        return encoder.embed(
            checked,
            pooling=encoder.sentences.pooling if pooling is None else check_pooling(pooling),
            normalise=encoder.sentences.normalise if normalise is None else normalise,
            prompt=encoder.prompt(prompt, prompt_name),
            limit=encoder.length(max_length),
        )

    def score(self, pairs: Sequence[tuple[str, str]], *, max_length: int | None = None) -> F32Array:
        """Return a cross-encoder's scores of pairs of texts, float32 ``[n]``, or ``[n, classes]`` for several classes.

        The activation is the configuration's; without one, a sigmoid for a single output, else none, as in
        `CrossEncoder` of sentence-transformers.

        Parameters
        ----------
        pairs : such as ``[(query, passage), …]``
        max_length : tokens after which a pair is truncated, the longer text first

        Raises
        ------
        GenerationError : the checkpoint has no classification head, or a pair is not two texts
        """
        encoder = self.text_encoder
        limit, checked = encoder.length(max_length), _check_pairs(pairs)
        outputs = _activated(encoder.head_outputs(checked, limit), encoder.loaded.config)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def classify(self, texts: Sequence[str], *, max_length: int | None = None) -> list[dict[str, float]]:
        """Return class → probability for each text, the most likely first; names are the configuration's ``id2label``.

        Probabilities are the softmax of the outputs; for a single output, or ``multi_label_classification`` in the
        configuration, each is a sigmoid.

        Raises
        ------
        GenerationError : the checkpoint has no classification head, or a text is not text
        """
        encoder, checked = self.text_encoder, check_texts(texts)
        outputs = encoder.head_outputs(checked, encoder.length(max_length))
        several = encoder.loaded.config.get("problem_type") == "multi_label_classification"
        chances = sigmoid(outputs) if several or outputs.shape[1] == 1 else softmax(outputs)
        names = encoder.loaded.classes
        return [{names[i]: float(row[i]) for i in np.argsort(-row, kind="stable")} for row in chances]

    def fill_mask(self, text: str, *, top_k: int = 5) -> list[list[FilledMask]]:
        """Return the most likely tokens for each mask in a text, such as ``"Paris is the [MASK] of France."``.

        Parameters
        ----------
        text : text with one or more of the tokenizer's mask tokens
        top_k : number of tokens for each mask

        Raises
        ------
        GenerationError : the checkpoint has no masked-language-model head, or the text has no mask or too many tokens
        SpecError : `top_k` is below 1
        """
        from volumetric.generate.masked_tokens import fill_mask

        return fill_mask(self, self.text_encoder, text, top_k)


def _warn_once(name: str, warned: set[str] = set()) -> None:  # noqa: B006  (one set for the whole process)
    if name not in warned:
        warned.add(name)
        logger.warning(
            "%s has no modules.json: embeddings are the mean of the hidden states, not normalised; set pooling= and "
            "normalise= to change that",
            name,
        )


def _check_pairs(pairs: object) -> list[tuple[str, str]]:
    if isinstance(pairs, (str, bytes)) or not isinstance(pairs, Sequence):
        raise GenerationError(f"pairs must be a list of pairs, got {type(pairs).__name__}", hint='[("a", "b"), …]')
    checked: list[tuple[str, str]] = []
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise GenerationError(f"pairs[{i}] is not a pair of texts", hint='[("query", "passage"), …]')
        first, second = check_texts(list(pair), f"pair {i}")
        checked.append((first, second))
    return checked


def _activated(outputs: F32Array, config: Mapping[str, Any]) -> F32Array:
    """Apply the activation that a cross-encoder's configuration names."""
    ours = config.get("sentence_transformers")
    stated = ours.get("activation_fn") if isinstance(ours, Mapping) else None
    stated = stated or config.get("sbert_ce_default_activation_function")
    name = str(stated or ("Sigmoid" if outputs.shape[1] == 1 else "Identity")).rpartition(".")[2]
    if name == "Sigmoid":
        return sigmoid(outputs)
    if name == "Softmax":
        return softmax(outputs)
    if name != "Identity":
        raise GenerationError(
            f"the activation {name[:60]!r} of the scores is not supported", hint="model.classify(texts)"
        )
    return outputs
