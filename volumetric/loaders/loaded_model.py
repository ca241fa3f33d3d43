"""open_model: open a source as a network with lazy weights, tokenizer, chat template and generation defaults.

The reader of each kind of file is a separate module that is imported only when needed: this saves a fifth of the time
to the first token.
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
from volumetric.loaders.chat_template import ChatTemplate
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.model_location import resolve
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.network import Network, Params
from volumetric.network.grid import Coord

if TYPE_CHECKING:
    from volumetric.analysis.standardise import Standardisation
    from volumetric.clocked import Clocked
    from volumetric.loaders.model_location import ModelLocation
    from volumetric.loaders.sentence_modules import PooledHead, SentenceEncoding

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model as described by its files, without a device.

    Attributes
    ----------
    name : short display name
    network : the structure
    params : weights, read from the files on demand
    tokenizer, chat_template : None if the files have none
    generation : end-of-text ids and sampling defaults
    context_length : context length in tokens, 0 if unknown
    path : file or directory of the weights
    config : the configuration with Hugging Face's names, empty for other networks
    inputs : standardisation of inputs before the network, or None
    classes : names of the output classes, if the files have them
    features : names of the input columns, if it was trained on a table
    sentences : how texts become embeddings, if the files contain this
    head : network that classifies pooled hidden states, if the checkpoint has one
    hidden : layer whose rows are the hidden states, if a head follows it
    damage : parameter → estimated KL divergence, in nats per token, that its scheme costs, if it was measured
    clocked : how the network runs tick by tick, if the files contain this
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
    sentences: SentenceEncoding | None = None
    head: PooledHead | None = None
    hidden: Coord | None = None
    damage: Mapping[str, float] = field(default_factory=dict)
    clocked: Clocked | None = None

    @property
    def directory(self) -> Path:
        """Directory of the files next to the weights."""
        return self.path if self.path.is_dir() else self.path.parent


class OpenUnconfigured(Protocol):
    """Function that opens weights without a configuration; `guess` as in `open_model`."""

    def __call__(
        self, location: ModelLocation, dtype: Scheme | None, guess: bool | Mapping[str, Any] | None
    ) -> LoadedModel:
        """Return the model."""
        ...


UNCONFIGURED: Final[Registry[OpenUnconfigured]] = Registry(group="volumetric.unconfigured")
"""Kind of files → opener for those without a configuration; higher packages register it."""


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
    dtype : scheme to which weights are converted when read; None keeps the stored scheme
    offline : whether to use only local files
    strict : whether to refuse missing and unexpected tensors
    guess : recognise safetensors without a configuration by names and shapes; a mapping gives values that these do not
        determine, such as ``{"num_attention_heads": 8}``, see docs/universal_loader.md

    Raises
    ------
    CheckpointError
        Not found, damaged, or the tensors do not fit the configuration; or there is no configuration, and values are
        missing in `guess`.
    SpecError
        `guess` has a value that is never used.
    UnsupportedError
        The family or a variant of it is not supported.
    DTypeError
        `dtype` is not a scheme.
    """
    scheme = None if dtype is None else Scheme.parse(dtype)
    location = resolve(os.fspath(source), offline=offline)
    if location.kind == "gguf":
        from volumetric.loaders.model_gguf import open_gguf_model

        return open_gguf_model(location, scheme, strict=strict)
    if location.kind == "onnx":
        from volumetric.loaders.onnx_import.network_onnx import open_onnx_network

        return open_onnx_network(location, scheme)
    if location.kind in ("native", "json"):
        from volumetric.loaders import model_native

        opened = model_native.open_native if location.kind == "native" else model_native.open_json
        return opened(location, scheme)
    if not (location.directory / "config.json").is_file():
        opener = UNCONFIGURED.get("safetensors")
        if opener is None:
            raise UnsupportedError(
                "no package that opens weights without a configuration is installed",
                hint="reinstall the package: its entry points are older than its files",
            )
        return opener(location, scheme, guess)
    from volumetric.loaders import model_hf

    if guess:
        logger.warning("%s has a config.json, which is used: guess is ignored", location.directory)
    return model_hf.open_hf(location, scheme, strict=strict)
