"""open_model: from a source to a network with lazy weights, tokenizer, chat template and generation defaults."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volumetric.analysis.standardise import Standardisation
from volumetric.clocked import Clocked
from volumetric.dtypes import DType, Scheme
from volumetric.errors import CheckpointError
from volumetric.grid import Coord
from volumetric.layers import Embedding
from volumetric.loaders import archs, gguf_archs, quantised
from volumetric.loaders.chat import ChatTemplate, chat_template, read_chat_template
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.generation_config import GenerationDefaults, end_tokens, read_generation
from volumetric.loaders.gguf import decoded_types, open_gguf
from volumetric.loaders.gguf_config import read_config
from volumetric.loaders.gguf_damage import read_damage
from volumetric.loaders.gguf_sentences import read_gguf_sentences
from volumetric.loaders.gguf_tokenizer import generation_ids, read_tokenizer
from volumetric.loaders.hf_config import MAX_SIZE, Config
from volumetric.loaders.hub import Location, resolve
from volumetric.loaders.json_file import read_object
from volumetric.loaders.mount import mount
from volumetric.loaders.names import SHOWN
from volumetric.loaders.native import read_clocked, read_native, read_native_head
from volumetric.loaders.quantise import convert, target_schemes
from volumetric.loaders.sentence import Head, Sentences, lacks_head, read_head, read_labels, read_sentences
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.source import TensorSource
from volumetric.loaders.tied import build_for
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.loaders.tokenizer_files import read_tokenizer_files
from volumetric.network import Network, Params, initialise
from volumetric.weights import WeightStore

if TYPE_CHECKING:
    from volumetric.loaders.detect import Detection

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
    sentences: Sentences | None = None
    head: Head | None = None
    hidden: Coord | None = None
    damage: Mapping[str, float] = field(default_factory=dict)
    clocked: Clocked | None = None

    @property
    def directory(self) -> Path:
        """Where the files beside the weights are."""
        return self.path if self.path.is_dir() else self.path.parent


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
        return _open_gguf(location, scheme, strict=strict)
    if location.kind == "native":
        return _open_native(location, scheme)
    if location.kind == "json":
        return _open_json(location, scheme)
    if not (location.directory / "config.json").is_file():
        return _open_guessed(location, scheme, guess)
    if guess:
        logger.warning("%s has a config.json, which is used: nothing is guessed", location.directory)
    return _open_hf(location, scheme, strict=strict)


def detect_model(
    source: str | os.PathLike[str], guess: bool | Mapping[str, Any] | None = None, *, offline: bool = False
) -> Detection | None:
    """Return what weights without a configuration are taken for; None where there is a configuration.

    Parameters
    ----------
    source, offline : as for `open_model`
    guess : values by name that names and shapes do not tell

    Raises
    ------
    CheckpointError
        Not found, or damaged.
    SpecError
        `guess` names a value that nothing asks for.
    """
    location = resolve(os.fspath(source), offline=offline)
    if location.kind != "hf" or (location.directory / "config.json").is_file():
        return None
    from volumetric.loaders.detect import Assumptions, detect, read_assumptions

    return detect(_open_bare(location), read_assumptions(guess) or Assumptions(), str(location.weights))


def _open_bare(location: Location) -> TensorSource:
    """Tensors without a configuration; of the ways to pack them, MXFP4's stacks of blocks show themselves by name."""
    files = open_safetensors(location.weights)
    if not any(name.endswith("_blocks") and f"{name[:-7]}_scales" in files.entries for name in files.entries):
        return files
    method = {"quantization_config": {"quant_method": "mxfp4"}}
    return quantised.opened(Config(method, str(location.weights), len(files.entries)), files)[1]


def _open_guessed(location: Location, dtype: Scheme | None, guess: bool | Mapping[str, Any] | None) -> LoadedModel:
    from volumetric.loaders.detect import detect, read_assumptions  # few models come without a configuration

    assumptions = read_assumptions(guess)
    if assumptions is None:
        raise CheckpointError(
            f"{location.directory} has weights and no config.json",
            hint="it names the family and the sizes; guess=True (--guess) goes by names and shapes of the tensors",
        )
    source, where = _open_bare(location), str(location.weights)
    found = detect(source, assumptions, where)
    if found.family and not found.missing:
        return _open_described(location, Config(found.values, where, len(source.entries)), source, dtype, strict=True)
    network, params = found.mount(source, dtype, where)
    if found.left_out:
        names, more = list(found.left_out)[:SHOWN], len(found.left_out) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        logger.warning("%s: taken for %s; left out: %s%s", where, found.architecture, ", ".join(names), rest)
    texts = _read_texts(location.directory, {}, _largest_table(network))
    return LoadedModel(
        name=location.name,
        network=network,
        params=params,
        tokenizer=texts.tokenizer,
        chat_template=texts.template,
        generation=texts.generation,
        context_length=0,
        path=location.weights,
    )


def _open_hf(location: Location, dtype: Scheme | None, *, strict: bool) -> LoadedModel:
    path = location.directory / "config.json"
    files = open_safetensors(location.weights)
    config, source = quantised.opened(Config(read_object(path), str(path), len(files.entries)), files)
    return _open_described(location, config, source, dtype, strict=strict)


def _open_described(
    location: Location, config: Config, source: TensorSource, dtype: Scheme | None, *, strict: bool
) -> LoadedModel:
    from volumetric.loaders.multimodal import text_part  # of no use to GGUF files, which open sooner without
    from volumetric.loaders.rows_apart import rows_joined

    directory = location.directory
    config, source = text_part(config, rows_joined(source))
    config, blueprint = build_for(config, source)
    sentences = read_sentences(directory) if blueprint.pooled is None else None
    if sentences is not None or lacks_head(blueprint, config, source):
        blueprint = trunk_of(blueprint)
    params = mount(blueprint, source, dtype, strict=strict)
    texts = _read_texts(directory, config.values, _vocabulary(config))
    return LoadedModel(
        name=location.name,
        network=blueprint.network,
        params=params,
        tokenizer=texts.tokenizer,
        chat_template=texts.template,
        generation=texts.generation,
        context_length=blueprint.context_length,
        path=location.weights,
        config=config.values,
        classes=read_labels(config) if blueprint.pooled is not None else (),
        sentences=sentences,
        head=read_head(blueprint, source),
        hidden=blueprint.hidden,
    )


def _open_gguf(location: Location, dtype: Scheme | None, *, strict: bool) -> LoadedModel:
    where = str(location.weights)
    file = open_gguf(location.weights)
    config = read_config(file, where)
    for kind, count in decoded_types(file).items() if dtype is None else ():
        logger.warning("%s: %d tensors in %s become float32; give a dtype to have them small", where, count, kind)
    family = gguf_archs.find(file.metadata.get("general.architecture"), where)
    blueprint = family.rules(archs.build(config))
    params = mount(blueprint, file, dtype, strict=strict)
    tokenizer = read_tokenizer(file, where)
    special = {} if tokenizer is None else tokenizer.special_tokens
    given = file.metadata.get("tokenizer.chat_template")
    template = chat_template({"default": given}, special, where) if isinstance(given, str) else None
    ends, ids = generation_ids(file)
    ends += _known_ids(tokenizer, _template_ends(template))
    generation = read_generation([ids], ends, _vocabulary(config), where)
    return LoadedModel(
        name=location.name,
        network=blueprint.network,
        params=params,
        tokenizer=tokenizer,
        chat_template=template,
        generation=generation,
        context_length=blueprint.context_length,
        path=location.weights,
        config=config.values,
        sentences=read_gguf_sentences(file, where),
        hidden=blueprint.hidden,
        damage=read_damage(file),
    )


def _open_native(location: Location, dtype: Scheme | None) -> LoadedModel:
    network, params, facts = read_native(location.directory, dtype)
    path = location.directory / "config.json"
    config = read_object(path) if path.is_file() else {}
    texts = _read_texts(location.directory, config, _largest_table(network))
    return LoadedModel(
        name=location.name,
        network=network,
        params=params,
        tokenizer=texts.tokenizer,
        chat_template=texts.template,
        generation=texts.generation,
        context_length=facts.context_length,
        path=location.directory,
        config=config,
        inputs=facts.inputs,
        classes=facts.classes,
        sentences=read_sentences(location.directory),
        head=read_native_head(location.directory, facts),
        hidden=facts.hidden,
        damage=facts.damage,
        clocked=read_clocked(location.directory, network),
    )


def _open_json(location: Location, dtype: Scheme | None) -> LoadedModel:
    from volumetric.loaders.network_file import read_network_file  # brings the reader of a format that few files have

    network, params = read_network_file(location.weights)
    if params is None:
        logger.warning("%s has no weights: they are drawn with seed 0", location.weights)
        params = initialise(network)
    targets = target_schemes(network, dtype)
    if targets:
        converted = {key: convert(store.stored(), targets.get(key)) for key, store in params.items()}
        params = Params({key: WeightStore.from_packed(packed) for key, packed in converted.items()})
    return LoadedModel(
        name=location.name,
        network=network,
        params=params,
        tokenizer=None,
        chat_template=None,
        generation=read_generation([], [], MAX_SIZE, str(location.weights)),
        context_length=0,
        path=location.weights,
    )


def _vocabulary(config: Config) -> int:
    return config.integer("vocab_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """What the files beside the weights say about text."""

    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    generation: GenerationDefaults


def _read_texts(directory: Path, config: Mapping[str, Any], vocabulary: int) -> _Texts:
    tokenizer, tokenizer_config = read_tokenizer_files(directory)
    special = {} if tokenizer is None else tokenizer.special_tokens
    template = read_chat_template(directory, tokenizer_config, special)
    path = directory / "generation_config.json"
    configs = [config, read_object(path)] if path.is_file() else [config]
    ends = _known_ids(tokenizer, [special.get("eos_token"), *_template_ends(template)])
    generation = read_generation(configs, ends, vocabulary, str(directory))
    return _Texts(tokenizer=tokenizer, template=template, generation=generation)


def _largest_table(network: Network) -> int:
    """Ids that a network knows, where no configuration says; any number of them where it reads none."""
    sizes = [spec.num_embeddings for spec in network.layers.values() if isinstance(spec, Embedding)]
    return max(sizes, default=MAX_SIZE)


def _template_ends(template: ChatTemplate | None) -> list[str]:
    """Tokens by which the chat template ends a turn."""
    return [] if template is None else sorted(end_tokens(template.source))


def _known_ids(tokenizer: Tokenizer | None, tokens: Iterable[str | None]) -> list[int | None]:
    """Ids of those tokens that the tokenizer has; none if it cannot be built, which matters only when it is used."""
    if tokenizer is None:
        return []
    try:
        return [tokenizer.token_id(token) for token in tokens]
    except CheckpointError as error:
        logger.warning("end-of-text ids of the tokenizer are unknown: %s", error)
        return []
