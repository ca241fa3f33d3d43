"""The views of a model: its tower, its layers, what it reads and predicts in a prompt, what differs from another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import SpecError, UnsupportedError, VolumetricError
from volumetric.loaders import LoadedModel, open_model
from volumetric.run.lower import lower
from volumetric.scope.model_attention import attention_view
from volumetric.scope.model_differences import weight_differences
from volumetric.scope.model_dna import dna_view, titled
from volumetric.scope.model_lens import lens_view
from volumetric.scope.model_prompt import LayerAttention, PromptTrace, trace_prompt
from volumetric.scope.model_table import model_view
from volumetric.scope.model_tokens import prompt_ids
from volumetric.scope.model_tower import tower_view

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.scope.document import ScopeView


def model_views(
    model: str | os.PathLike[str] | LoadedModel | Model,
    prompt: str | Sequence[int] | None = None,
    other: str | os.PathLike[str] | LoadedModel | Model | None = None,
    *,
    offline: bool = False,
) -> list[ScopeView]:
    """Return the views of a model.

    They are ``tower`` and ``model``; with a prompt also ``attention`` and ``lens``, and with another model ``dna``.

    Parameters
    ----------
    model : a GGUF or safetensors file, a directory, a hub id or ``pkg:module``, as for `load`; what `open_model`
        returns; or an open model. Weights are read only for a prompt or another model. Adapters of an open model are
        not seen.
    prompt : text, or token ids; at most 128 tokens are shown. Of a model that has no attention, or no head over its
        vocabulary, the view that needs it is left out; if it has neither, that is an error.
    other : a model to compare with, such as the one before training or before quantisation. It is the reference of
        relative errors, if weights of both have equal names and shapes.
    offline : whether to use only local files

    Raises
    ------
    CheckpointError : not found, or damaged
    UnsupportedError : the family is not supported, or there is a prompt and nothing that shows it
    GenerationError : the prompt is empty, or is text and the model has no tokenizer
    """
    loaded = _open(model, offline=offline)
    reference = None if other is None else _open(other, offline=offline)
    plan = lower(loaded.network)
    errors = None
    if reference is not None:
        try:
            errors = weight_differences(plan, loaded.params, reference.params)
        except SpecError:  # of other shapes: DNA says so layer by layer
            errors = None
    trace = None if prompt is None else trace_prompt(_runnable(model, loaded), prompt_ids(loaded, prompt))
    compared = None if reference is None else dna_view(reference, loaded, errors)
    similarity = None if compared is None else {c["path"]: c["similarity"] for c in compared.data["cells"]}
    views = [
        tower_view(
            loaded,
            errors,
            similarity=None if similarity is None else {k: v for k, v in similarity.items() if v is not None},
            attention=None if trace is None else {layer.where: head_entropy(layer) for layer in trace.attention},
        ),
        model_view(loaded, errors, reference="" if errors is None or reference is None else titled(reference)),
    ]
    if trace is not None:
        views += _prompt_views(trace)
    return views if compared is None else [*views, compared]


def head_entropy(layer: LayerAttention) -> F32Array:
    """Return how spread each head reads: the mean entropy of its rows in bits, ``[heads]``; 0: one token each time."""
    w = layer.weights.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = -np.where(w > 0, w * np.log2(w), 0.0).sum(-1)
    return bits.mean(-1).astype(np.float32)


def _prompt_views(trace: PromptTrace) -> list[ScopeView]:
    views: list[ScopeView] = []
    reasons: list[VolumetricError] = []
    for build in (attention_view, lens_view):
        try:
            views.append(build(trace))
        except UnsupportedError as error:
            reasons.append(error)
    if not views:
        raise reasons[0]
    return views


def _runnable(model: object, loaded: LoadedModel) -> LoadedModel | Model:
    """Return an open model as it is, because it knows its context; else the files."""
    return loaded if isinstance(model, (str, os.PathLike, LoadedModel)) else model  # pyright: ignore[reportReturnType]


def _open(model: str | os.PathLike[str] | LoadedModel | Model, *, offline: bool) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, (str, os.PathLike)):
        return open_model(model, offline=offline)
    return model.loaded
