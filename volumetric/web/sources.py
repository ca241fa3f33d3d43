"""Sources of exports: which kind of network a source is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from volumetric.base.errors import SpecError, UnsupportedError, VolumetricError
from volumetric.clocked import Clocked
from volumetric.evolution.genome import Genome
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.loaded_model import LoadedModel, open_model
from volumetric.network import Network, Params
from volumetric.run.lower import looks_ahead, lower
from volumetric.train import TrainConfig
from volumetric.web.clocked_networks import ClockedNetwork
from volumetric.web.genome_populations import GenomePopulation
from volumetric.web.kinds import RecordedKind
from volumetric.web.language_models import LanguageModel
from volumetric.web.learner_network import LearnerNetwork, learner_of
from volumetric.web.neat_population import NeatPopulation
from volumetric.web.row_networks import RowNetwork
from volumetric.web.text_encoders import TextEncoderModel

CONTEXT: Final = 1024
TEXT_TOKENS: Final = 128
_MOST_ROWS: Final = 4096


def recorded_kind(
    source: Any,
    *,
    params: Params | None = None,
    rows: tuple[int, ...] = (1, 16),
    context: int | None = None,
    dtype: str | None = None,
    title: str | None = None,
    samples: int = 64,
    learn: TrainConfig | bool = False,
) -> RecordedKind:
    """Return the network of a source, ready to be recorded; parameters and errors as of `export_network`."""
    _check_counts(rows, context, samples)
    if learn:
        model = _model_to_learn(source, params, dtype)
        return learner_of(model, None if learn is True else learn, rows, title or model.name, _origin(model))
    if isinstance(source, LearnerNetwork | NeatPopulation):
        return source if title is None else replace(source, title=title)
    if isinstance(source, Genome):
        return _of_genomes([source], rows, title, samples)
    if isinstance(source, Sequence) and source and all(isinstance(one, Genome) for one in source):
        return _of_genomes(list(source), rows, title, samples, apart=True)
    if isinstance(source, Network | Clocked):
        if params is None:
            raise SpecError("a network is exported with its weights", hint="pass params=…")
        if isinstance(source, Clocked):
            return ClockedNetwork(source, params, title or "clocked network", _origin(None))
        return _of_model(_bare(source, params), rows, context, title or "network", _origin(None))
    if isinstance(source, LoadedModel):
        return _of_model(source, rows, context, title or source.name, _origin(source))
    if isinstance(source, str | os.PathLike):
        if (genome := _genome_at(source)) is not None:
            return _of_genomes([genome], rows, title or Path(source).stem, samples)
        loaded = open_model(source, dtype)
        # The path of a file is nobody's business; that of a package or a hub is where others find the model.
        named = None if Path(source).exists() else os.fspath(source)
        return _of_model(loaded, rows, context, title or loaded.name, _origin(loaded, named))
    raise SpecError(
        f"source: expected a model, a network or genomes, got {type(source).__name__}",
        hint="pass a path, a LoadedModel, a Network or Clocked with params, or Genomes",
    )


def _model_to_learn(source: Any, params: Params | None, dtype: str | None) -> LoadedModel:
    if isinstance(source, Network) and params is not None:
        return _bare(source, params)
    if isinstance(source, LoadedModel):
        return source
    if isinstance(source, str | os.PathLike):
        if (genome := _genome_at(source)) is None:
            return open_model(source, dtype)
        source = genome
    if isinstance(source, Genome):
        return _bare(*source.to_network())
    raise SpecError(
        f"learn: a {type(source).__name__} does not learn in a page", hint="pass a model, or a Network with params"
    )


def _of_model(
    model: LoadedModel, rows: tuple[int, ...], context: int | None, title: str, origin: Mapping[str, str | None]
) -> RecordedKind:
    if model.clocked is not None:
        return ClockedNetwork(model.clocked, model.params, title, origin)
    files = {} if model.tokenizer is None else {"tokenizer.json": model.tokenizer.to_json().encode()}
    known = model.context_length or CONTEXT
    if model.network.input_dtype == "int32" and model.tokenizer is not None:
        plan = lower(model.network, context)
        if any(looks_ahead(plan, step) for step in plan.steps):
            limits = [model.sentences and model.sentences.max_length, model.tokenizer.max_length]
            tokens = context or min(TEXT_TOKENS, known, *(limit for limit in limits if limit))
            return TextEncoderModel(model, tokens, rows, title, origin, files)
    if _predicts_tokens(model):
        return LanguageModel(model, context or min(CONTEXT, known), title, origin, files)
    return RowNetwork(model, rows, context or min(CONTEXT, known), title, origin, files)


def _predicts_tokens(model: LoadedModel) -> bool:
    """Whether a network reads ids and outputs a score for each of them."""
    network = model.network
    if network.input_dtype != "int32" or len(network.ports) != 1 or len(network.shapes[min(network.layers)]) != 2:
        return False
    first = network.layers[min(network.layers)]
    plan = lower(network)
    looks = any(looks_ahead(plan, step) for step in plan.steps)
    return not looks and getattr(first, "num_embeddings", 0) == network.shapes[max(network.layers)][-1]


def _of_genomes(
    genomes: list[Genome], rows: tuple[int, ...], title: str | None, samples: int, *, apart: bool = False
) -> RecordedKind:
    """Return a champion as a network if layers can have its nodes, else the genomes as a population."""
    if not apart:
        try:
            network, params = genomes[0].to_network()
        except UnsupportedError:
            pass
        else:
            files = {"genome.json": genomes[0].to_json().encode()}
            return RowNetwork(_bare(network, params), rows, max(rows), title or "champion", _origin(None), files)
    return GenomePopulation(genomes, samples, title or "population", _origin(None))


def _genome_at(source: str | os.PathLike[str]) -> Genome | None:
    """Return the genome in a file; None if it is something else."""
    if not str(source).endswith(".json"):
        return None
    try:
        return Genome.load(Path(source))
    except VolumetricError:
        return None


def _bare(network: Network, params: Params) -> LoadedModel:
    """Return a network without files."""
    return LoadedModel(
        name="network", network=network, params=params, tokenizer=None, chat_template=None,
        generation=GenerationDefaults(), context_length=0, path=Path(),
    )  # fmt: skip


def _origin(model: LoadedModel | None, source: str | None = None) -> dict[str, str | None]:
    if model is None:
        return {"name": None, "source": None, "licence": None}
    licence = model.config.get("license")
    return {"name": model.name, "source": source, "licence": licence if isinstance(licence, str) else None}


def _check_counts(rows: tuple[int, ...], context: int | None, samples: int) -> None:
    wrong = [count for count in rows if type(count) is not int or not 1 <= count <= _MOST_ROWS]
    if wrong or not rows:
        raise SpecError(f"rows: expected numbers from 1 to {_MOST_ROWS}, got {list(rows)}")
    for name, value in (("context", context), ("samples", samples)):
        if value is not None and (type(value) is not int or value < 1):
            raise SpecError(f"{name} must be a whole number of 1 or more, got {value!r}")
