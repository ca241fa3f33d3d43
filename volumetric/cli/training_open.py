"""Opens the network, weights and samples of a training run from its settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from volumetric.base import config_tables
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.builders import BUILDERS
from volumetric.clocked import Clocked
from volumetric.dtypes import Scheme
from volumetric.loaders.byte_tokenizer import byte_tokenizer_json
from volumetric.loaders.loaded_model import LoadedModel, open_model
from volumetric.loaders.native_facts import NativeFacts
from volumetric.loaders.network_file import read_network_file
from volumetric.loaders.text_files import text_files
from volumetric.network import Network, Params, initialise
from volumetric.train import TrainConfig
from volumetric.train.problems import Problem
from volumetric.train.settings import RunSettings
from volumetric.train.sources import RunSamples, Tokenize, open_samples

OF_SEQUENCES: Final = ("transformer", "stack", "fabric")
"""Builders of networks on sequences of rows, with a configurable inner width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """Inputs of a training run.

    Attributes
    ----------
    machine : the clocked network, if it is trained tick by tick
    files : name → content of files that are saved with the weights, such as a tokenizer
    facts : metadata of the saved model
    model : the model that the run starts from, if any
    """

    network: Network
    params: Params
    samples: RunSamples
    config: TrainConfig
    files: Mapping[str, bytes]
    facts: NativeFacts
    machine: Clocked | None = None
    model: LoadedModel | None = None

    @property
    def subject(self) -> Network | Clocked:
        """The network or clocked network that is trained."""
        return self.machine or self.network


def open_run(run: RunSettings) -> OpenedRun:
    """Read all files of the settings.

    Raises
    ------
    VolumetricError
        A file is missing or damaged, or files do not match each other.
    """
    opened = _reshape_samples(_of_model(run) if run.network.model else _of_structure(run))
    if not run.ticking:
        return opened
    known = None if opened.model is None else opened.model.clocked
    machine = run.clocked.machine(known or Clocked(network=opened.network))
    return dataclasses.replace(opened, machine=machine)


def _of_structure(run: RunSettings) -> OpenedRun:
    read = read_network_file(run.path(run.network.file)) if run.network.file else None
    samples = open_samples(run, network=None if read is None else read[0])
    network, params = (
        _build(run, samples)
        if read is None
        else (read[0], read[1] or initialise(read[0], run.seed, init=run.network.init))
    )
    tokens = samples.problem.vocabulary and run.data.text
    return OpenedRun(
        network=network,
        params=params,
        samples=samples,
        config=_config(run, samples),
        files={"tokenizer.json": byte_tokenizer_json()} if tokens else {},
        facts=_facts(samples, run.data.length if tokens else 0),
    )


def _of_model(run: RunSettings) -> OpenedRun:
    scheme = Scheme.parse(run.network.dtype) if run.network.dtype else None
    local = run.path(run.network.model)
    model = open_model(local if local.exists() else run.network.model, dtype=scheme)
    tokenize: Tokenize | None = None
    if model.tokenizer is not None:
        tokenize = model.tokenizer.encode
    samples = open_samples(run, tokenize, model.inputs, model.classes, model.network, model.features)
    return OpenedRun(
        network=model.network,
        params=model.params,
        samples=samples,
        config=_config(run, samples),
        files=text_files(model),
        facts=_facts(samples, model.context_length),
        model=model,
    )


def _facts(samples: RunSamples, context_length: int) -> NativeFacts:
    of = samples.problem
    return NativeFacts(context_length=context_length, inputs=samples.scaling, classes=of.classes, features=of.features)


def _config(run: RunSettings, samples: RunSamples) -> TrainConfig:
    config = run.train
    return dataclasses.replace(
        config,
        loss=config.loss if run.loss_given else samples.loss,
        accuracy=samples.classed if config.accuracy is None else config.accuracy,
    )


def _build(run: RunSettings, samples: RunSamples) -> tuple[Network, Params]:
    settings, problem = run.network, samples.problem
    name = settings.builder or ("sequential" if run.ticking else _fitting(problem))
    if samples.named:
        raise SpecError(
            f"[network] builder: {name} builds networks of one input and one output, the samples have {samples.named}",
            hint="set [network] file or model to a network that has these",
        )
    known: dict[str, Any] = {"outputs": problem.outputs}
    if problem.vocabulary:
        known["vocabulary"] = problem.vocabulary
    sequences = run.ticking or problem.resets is not None
    if problem.inputs.ndim == (3 if sequences else 2) or (problem.inputs.ndim == 3 and name in OF_SEQUENCES):
        known |= {"inputs": problem.inputs.shape[-1], "width": problem.inputs.shape[-1]}
    if problem.shape:
        known["shape"] = problem.shape
    if name in OF_SEQUENCES:
        known.pop("width", None)  # sizes of inner layers, which the data do not determine
    _check_samples(name, settings.options, problem, ticking=run.ticking)
    network = config_tables.build_from_registry(
        BUILDERS, {"kind": name, **settings.options}, "[network] builder", **known
    )
    return network, initialise(network, run.seed, init=run.network.init)


def _check_samples(builder: str, options: Mapping[str, Any], problem: Problem, *, ticking: bool) -> None:
    """Raise `SpecError` for a builder that reads samples of another form."""
    shape = list(problem.inputs.shape[1:])
    if ticking and problem.inputs.ndim == 2 and not problem.vocabulary:
        raise SpecError(
            f"[train] mode: clocked networks read sequences [samples, T, features], these samples have shape {shape}",
            hint='use samples that are sequences, as problem = "waves", or remove mode',
        )
    if builder == "cnn" and not problem.shape and "shape" not in options:
        raise SpecError(
            f'[network] builder "cnn" reads pictures, these samples have shape {shape}',
            hint='use builder = "sequential"; or set options = { shape = [1, 28, 28] } if a row is a picture',
        )
    if builder == "transformer" and not problem.vocabulary and "vocabulary" not in options:
        raise SpecError(
            f'[network] builder "transformer" reads tokens, these samples are numbers of shape {shape}',
            hint='use builder = "sequential"; or text = "story.txt" in [data]',
        )


def _fitting(problem: Problem) -> str:
    if problem.vocabulary:
        return "transformer"
    return "cnn" if problem.inputs.ndim > 2 and problem.resets is None else "sequential"


def _reshape_samples(opened: OpenedRun) -> OpenedRun:
    """Reshape image samples to the shape that the network reads, if only that differs."""
    shape, problem = opened.network.input_shape, opened.samples.problem
    rows_or_sequences = (problem.inputs.shape[1:], problem.inputs.shape[2:])
    if problem.vocabulary or shape in rows_or_sequences or shape == ():
        return opened

    def fit(x: Array) -> Array:
        if x[0].size != int(np.prod(shape)):
            raise SpecError(
                f"the network reads rows of shape {list(shape)}, the samples have {list(x.shape[1:])}",
                hint="leave sizes that the data determine out of [network] options"
                if opened.model is None
                else "use data with as many features as the model was trained on",
            )
        return x.reshape(len(x), *shape)

    samples = opened.samples
    validation = samples.validation
    return dataclasses.replace(
        opened,
        samples=dataclasses.replace(
            samples,
            data=samples.data.with_features(fit),
            validation=None if validation is None else validation.with_features(fit),
        ),
    )
