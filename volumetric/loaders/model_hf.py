"""A model from safetensors: as a configuration describes it, or without one, as names and shapes say."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Scheme
from volumetric.loaders import quantised
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hub import Location
from volumetric.loaders.json_file import read_object
from volumetric.loaders.model import LoadedModel
from volumetric.loaders.model_texts import largest_table, read_texts
from volumetric.loaders.mount import mount
from volumetric.loaders.multimodal import text_part
from volumetric.loaders.names import SHOWN
from volumetric.loaders.rows_apart import rows_joined
from volumetric.loaders.sentence import lacks_head, read_head, read_labels, read_sentences
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.source import TensorSource
from volumetric.loaders.tied import build_for

logger = logging.getLogger(__name__)


def open_bare(location: Location) -> TensorSource:
    """Return tensors without a configuration; of ways to pack them, MXFP4's stacks of blocks show by their names."""
    files = open_safetensors(location.weights)
    if not any(name.endswith("_blocks") and f"{name[:-7]}_scales" in files.entries for name in files.entries):
        return files
    method = {"quantization_config": {"quant_method": "mxfp4"}}
    return quantised.opened(Config(method, str(location.weights), len(files.entries)), files)[1]


def open_guessed(location: Location, dtype: Scheme | None, guess: bool | Mapping[str, Any] | None) -> LoadedModel:
    """Open safetensors without a configuration; see `model.open_model`."""
    from volumetric.detect import detect, read_assumptions  # few models come without a configuration
    from volumetric.detect.spellings import adapter_of

    assumptions = read_assumptions(guess)
    source, where = open_bare(location), str(location.weights)
    adapter = adapter_of(source.entries)
    if adapter is not None:
        raise CheckpointError(f"{where} is {adapter[0]}, and no model", hint=adapter[1])
    if assumptions is None:
        raise CheckpointError(
            f"{location.directory} has weights and no config.json",
            hint="it names the family and the sizes; guess=True (--guess) goes by names and shapes of the tensors",
        )
    found = detect(source, assumptions, where)
    if found.assumed and not found.missing:
        told = ", ".join(f"{name} {value}" for name, value in found.assumed.items())
        logger.warning(
            "%s: taken for %s; by convention, which guess= (--assume) changes: %s", where, found.architecture, told
        )
    if found.family and not found.missing and found.source is not None:
        config = Config(found.values, where, len(source.entries))
        return _open_described(location, config, found.source, dtype, strict=True)
    network, params = found.mount(source, dtype, where)
    if found.left_out:
        names, more = list(found.left_out)[:SHOWN], len(found.left_out) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        logger.warning("%s: taken for %s; left out: %s%s", where, found.architecture, ", ".join(names), rest)
    texts = read_texts(location.directory, {}, largest_table(network))
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


def open_hf(location: Location, dtype: Scheme | None, *, strict: bool) -> LoadedModel:
    """Open safetensors with a configuration; see `model.open_model`."""
    path = location.directory / "config.json"
    files = open_safetensors(location.weights)
    config, source = quantised.opened(Config(read_object(path), str(path), len(files.entries)), files)
    return _open_described(location, config, source, dtype, strict=strict)


def _open_described(
    location: Location, config: Config, source: TensorSource, dtype: Scheme | None, *, strict: bool
) -> LoadedModel:
    directory = location.directory
    config, source = text_part(config, rows_joined(source))
    config, blueprint = build_for(config, source)
    sentences = read_sentences(directory) if blueprint.pooled is None else None
    if sentences is not None or lacks_head(blueprint, config, source):
        blueprint = trunk_of(blueprint)
    params = mount(blueprint, source, dtype, strict=strict)
    texts = read_texts(directory, config.values, config.integer("vocab_size"))
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
