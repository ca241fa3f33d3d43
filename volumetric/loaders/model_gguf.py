"""A model from a GGUF file."""

from __future__ import annotations

import logging

from volumetric.dtypes import Scheme
from volumetric.loaders import archs
from volumetric.loaders.chat_template import chat_template
from volumetric.loaders.generation_config import read_generation
from volumetric.loaders.gguf import GGUFSource, decoded_types, open_gguf
from volumetric.loaders.gguf_config import read_config, read_damage
from volumetric.loaders.gguf_sentences import read_gguf_sentences
from volumetric.loaders.gguf_tokenizer import generation_ids, read_tokenizer
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.model_location import ModelLocation
from volumetric.loaders.model_texts import known_ids, template_ends
from volumetric.loaders.mount import mount

logger: logging.Logger = logging.getLogger(__name__)


def open_gguf_model(location: ModelLocation, dtype: Scheme | None, *, strict: bool) -> LoadedModel:
    """Open a GGUF file; see `model.open_model`."""
    return model_of_gguf(open_gguf(location.weights), location, dtype, strict=strict)


def model_of_gguf(
    file: GGUFSource, location: ModelLocation, dtype: Scheme | None = None, *, strict: bool = True
) -> LoadedModel:
    """Return the model of an open GGUF source, whose tensors are read when they are needed; see `open_model`."""
    where = str(location.weights)
    config = read_config(file, where)
    for kind, count in decoded_types(file).items() if dtype is None else ():
        logger.warning("%s: %d tensors in %s become float32; give a dtype for smaller weights", where, count, kind)
    family = archs.gguf_family(file.metadata.get("general.architecture"), where)
    blueprint = family.rules(archs.build(config))
    params = mount(blueprint, file, dtype, strict=strict)
    tokenizer = read_tokenizer(file, where)
    special = {} if tokenizer is None else tokenizer.special_tokens
    template_source = file.metadata.get("tokenizer.chat_template")
    template = chat_template({"default": template_source}, special, where) if isinstance(template_source, str) else None
    ends, ids = generation_ids(file)
    ends += known_ids(tokenizer, template_ends(template))
    generation = read_generation([ids], ends, config.integer("vocab_size"), where)
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
