"""Text embedding settings in GGUF files: llama.cpp's ``pooling_type``, and custom keys for other settings.

llama.cpp always scales embeddings to length 1, so this is the default for a file that has only a pooling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders.gguf import GGUFSource

if TYPE_CHECKING:
    from volumetric.loaders.sentence_modules import SentenceEncoding
    from volumetric.run.text_pooling import Pooling

OWN: Final = "volumetric.embedding."
"""Prefix of the keys that only this package reads."""
_PROMPT: Final = OWN + "prompt."
_POOLINGS: Final[dict[int, Pooling]] = {1: "mean", 2: "cls", 3: "lasttoken"}
_RANK: Final = 4
_FLAGS: Final = {"normalise": True, "include_prompt": True, "lower_case": False}


def read_gguf_sentences(file: GGUFSource, where: str) -> SentenceEncoding | None:
    """Return how texts become embeddings, None if the file has no pooling.

    Raises
    ------
    CheckpointError : a value is ill-typed or out of range
    UnsupportedError : the model ranks texts
    """
    key = f"{file.metadata.get('general.architecture')}.pooling_type"
    kind = file.metadata.get(key, 0)
    if type(kind) is not int or (kind and kind != _RANK and kind not in _POOLINGS):
        raise CheckpointError(f"{where}: {key} is {str(kind)[:60]!r}, expected 0 to {_RANK}")
    if kind == 0:
        return None
    if kind == _RANK:
        raise UnsupportedError(
            f"{where}: ranking heads in GGUF files are not supported",
            hint="open the original Hugging Face model and use score(pairs)",
        )
    from volumetric.loaders.sentence_modules import SentenceEncoding  # few files are embedding models

    flags = {name: file.metadata.get(OWN + name, default) for name, default in _FLAGS.items()}
    prompts = {key.removeprefix(_PROMPT): file.metadata[key] for key in file.metadata if key.startswith(_PROMPT)}
    wrong = [OWN + name for name, value in flags.items() if type(value) is not bool]
    wrong += [_PROMPT + name for name, value in prompts.items() if not isinstance(value, str)]
    default = file.metadata.get(OWN + "default_prompt")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        wrong.append(OWN + "default_prompt")
    if wrong:
        raise CheckpointError(f"{where}: {wrong[0]} has the wrong type")
    return SentenceEncoding(pooling=(_POOLINGS[kind],), prompts=prompts, default_prompt=default, **flags)  # pyright: ignore[reportArgumentType]  (checked one by one)


def sentence_metadata(architecture: str, sentences: SentenceEncoding | None) -> dict[str, Any]:
    """Inverse of `read_gguf_sentences`, without the length of texts, which is in the tokenizer's metadata.

    Raises
    ------
    UnsupportedError
        GGUF cannot store this pooling, or there are layers after the pooling.
    """
    if sentences is None:
        return {}
    if sentences.dense is not None:
        raise UnsupportedError(
            "GGUF cannot store layers after the pooling, but the model has some", hint="use format hf"
        )
    kinds: dict[tuple[Pooling, ...], int] = {(pooling,): kind for kind, pooling in _POOLINGS.items()}
    if sentences.pooling not in kinds:
        raise UnsupportedError(
            f"GGUF cannot store the pooling {' + '.join(sentences.pooling)}",
            hint=f"use one of {', '.join(_POOLINGS.values())}, or format hf",
        )
    own: dict[str, Any] = {name: np.bool_(getattr(sentences, name)) for name in _FLAGS}
    own |= {f"prompt.{name}": text for name, text in sentences.prompts.items()}
    if sentences.default_prompt is not None:
        own["default_prompt"] = sentences.default_prompt
    pooling = {f"{architecture}.pooling_type": np.uint32(kinds[sentences.pooling])}
    return pooling | {OWN + name: value for name, value in own.items()}
