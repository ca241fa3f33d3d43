"""open_model: from a source to a network with lazy weights, tokenizer, chat template and generation defaults.

Readers of the kinds of files are modules of their own, imported when a source is of their kind: a fifth of the time to
a first token went into reading code for files that were not there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from volumetric.base.errors import UnsupportedError
from volumetric.base.registry import Registry
from volumetric.dtypes import DType, Scheme
from volumetric.loaders.chat import ChatTemplate
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.hub import resolve
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.network import Network, Params
from volumetric.network.grid import Coord

if TYPE_CHECKING:
    from volumetric.analysis.standardise import Standardisation
    from volumetric.clocked import Clocked
    from volumetric.loaders.hub import Location
    from volumetric.loaders.sentence import Head, Sentences

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model as its files describe it; no device is involved yet.

    Attributes
    ----------
    name : short name for people
    network : structure
    params : weights, read from the files when asked for
    tokenizer, chat_template : None where the files have none
    generation : end-of-text ids and sampling defaults
    context_length : tokens that the model was trained for, 0 if unknown
    path : file or directory of the weights
    config : the configuration in Hugging Face's terms, empty for networks of other origin
    inputs : how inputs are standardised before the network reads them, or None
    classes : names of the classes that outputs stand for, where the files have them
    features : names of the columns that it learned from, where it learned from a table
    sentences : how texts become embeddings, where the files say so
    head : network that judges pooled hidden states, where the checkpoint has one; its outputs are the classes
    hidden : layer whose rows are the hidden states, where layers of a head come after it
    damage : parameter → estimated KL divergence, in nats a token, that its scheme costs; where types were chosen by it
    clocked : how the network runs tick by tick, where the files say so
    """

    name: str
    network: Network
    params: Params
    tokenizer: Tokenizer | None
    chat_template: ChatTemplate | None
    generation: GenerationDefaults
    context_length: int
    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    inputs: Standardisation | None = None
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    sentences: Sentences | None = None
    head: Head | None = None
    hidden: Coord | None = None
    damage: Mapping[str, float] = field(default_factory=dict)
    clocked: Clocked | None = None

    @property
    def directory(self) -> Path:
        """Where the files beside the weights are."""
        return self.path if self.path.is_dir() else self.path.parent


class OpenUnconfigured(Protocol):
    """Opens weights that have no configuration; `guess` as in `open_model`."""

    def __call__(self, location: Location, dtype: Scheme | None, guess: bool | Mapping[str, Any] | None) -> LoadedModel:
        """Return the model."""
        ...


UNCONFIGURED: Final[Registry[OpenUnconfigured]] = Registry(group="volumetric.unconfigured")
"""Kind of files → what opens those that come without a configuration; rooms above this one register it."""


def open_model(
    source: str | os.PathLike[str],
    dtype: str | DType | Scheme | None = None,
    *,
    offline: bool = False,
    strict: bool = True,
    guess: bool | Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Open a model without reading its weights.

    Parameters
    ----------
    source : path, hub id or ``pkg:module``; see `hub.resolve`
    dtype : scheme that weights are converted to when they are read; None keeps them as stored
    offline : use local files only
    strict : refuse missing and unexpected tensors
    guess : safetensors without a configuration are taken for what names and shapes say; what these do not tell is
        given by name, as in ``{"num_attention_heads": 8}``, see docs/universal_loader.md

    Raises
    ------
    CheckpointError
        Not found, damaged, or the tensors do not fit the configuration; or there is none, and `guess` does not tell
        what is missing.
    SpecError
        `guess` names a value that nothing asks for.
    UnsupportedError
        The family or a variant of it is not built here.
    DTypeError
        `dtype` names no scheme.
    """
    scheme = None if dtype is None else Scheme.parse(dtype)
    location = resolve(os.fspath(source), offline=offline)
    if location.kind == "gguf":
        from volumetric.loaders.model_gguf import open_gguf_model

        return open_gguf_model(location, scheme, strict=strict)
    if location.kind in ("native", "json"):
        from volumetric.loaders import model_native

        opened = model_native.open_native if location.kind == "native" else model_native.open_json
        return opened(location, scheme)
    if not (location.directory / "config.json").is_file():
        opener = UNCONFIGURED.get("safetensors")
        if opener is None:
            raise UnsupportedError(
                "nothing is installed that opens weights without a configuration",
                hint="install the package again: its entry points, which name what does, are older than its files",
            )
        return opener(location, scheme, guess)
    from volumetric.loaders import model_hf

    if guess:
        logger.warning("%s has a config.json, which is used: nothing is guessed", location.directory)
    return model_hf.open_hf(location, scheme, strict=strict)
