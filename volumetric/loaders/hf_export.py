"""Write a model as a Hugging Face directory: the family's tensor names and layouts, plain floats, config, tokenizer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import Scheme, decode
from volumetric.loaders import archs
from volumetric.loaders.directory import new_directory
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.hf_config import Config
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.name_rules import ModelBlueprint, NameRule, pairs_from_halves, stacked_shape, stored_rows
from volumetric.loaders.numbered_rows import row_names
from volumetric.loaders.safetensors_write import TensorOut, tag_of, write_safetensors
from volumetric.loaders.text_files import text_files, to_json
from volumetric.network import Params

FLOATS: Final = ("float64", "float32", "float16", "bfloat16")


def blueprint_of(model: LoadedModel) -> ModelBlueprint:
    """Return the blueprint of a model's configuration.

    Raises
    ------
    UnsupportedError
        The model has no configuration, or its network differs from the configuration.
    """
    if not model.config:
        raise UnsupportedError(
            f"{model.name} belongs to no family that other programs support",
            hint="use format native, which stores any network",
        )
    blueprint = archs.build(Config(model.config, f"{model.name}: config.json"))
    if model.hidden is None and blueprint.hidden is not None and blueprint.network != model.network:
        blueprint = trunk_of(blueprint)  # opened for its hidden states, without the head
    if blueprint.network != model.network:
        raise UnsupportedError(f"the network of {model.name} differs from its configuration", hint="use format native")
    return blueprint


def save_hf(directory: str | Path, model: LoadedModel) -> None:
    """Write ``config.json``, ``model.safetensors`` and the tokenizer's files.

    Tensors in plain floats keep their type; all others are written as float32, which is exact for their values.

    Raises
    ------
    CheckpointError, UnsupportedError
        The directory cannot be written, or the model belongs to no family.
    """
    blueprint = blueprint_of(model)
    tensors = _tensors(blueprint, model.params)
    if model.head is not None and blueprint.pooled is not None:
        tensors |= _tensors(blueprint.pooled, model.head.params)
    files = text_files(model) | {"config.json": to_json(_config(model))}
    with new_directory(directory, "config.json") as home:
        for name, content in sorted(files.items()):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(home / name, content)
        write_safetensors(home / "model.safetensors", tensors, {"format": "pt"})


def _config(model: LoadedModel) -> dict[str, Any]:
    """Configuration with the dtype of most written elements."""
    main = next(iter(model.params.schemes()), None)
    values = {key: value for key, value in model.config.items() if key not in ("torch_dtype", "quantization_config")}
    return values | {"dtype": "float32" if main is None else out_scheme(main).dtype.name}


def out_scheme(scheme: Scheme) -> Scheme:
    """Plain float scheme of a written tensor."""
    return scheme if scheme.dtype.name in FLOATS else Scheme.parse("float32")


def _tensors(blueprint: ModelBlueprint, params: Params) -> dict[str, TensorOut]:
    """Tensors by their names in the family, with fused tensors joined again."""
    shapes = {key: spec.shape for key, spec in blueprint.network.param_specs().items()}
    rows = stored_rows(list(blueprint.rules))
    groups: dict[str, list[NameRule]] = {}
    for rule in blueprint.rules:
        groups.setdefault(rule.source, []).append(rule)
    tensors: dict[str, TensorOut] = {}
    for name, rules in groups.items():
        out = _dense_tensor_out(rules, params, (rows.get(name, shapes[rules[0].key][0]), *shapes[rules[0].key][1:]))
        if "*" in name:
            tensors |= {own: _row(out, i) for i, own in enumerate(row_names(name, out.shape[0]))}
        else:
            tensors[name] = out
    return tensors


def _row(matrix: TensorOut, i: int) -> TensorOut:
    return dataclasses.replace(matrix, shape=matrix.shape[1:], read=lambda: matrix.read()[i])


def _dense_tensor_out(rules: list[NameRule], params: Params, shape: Shape) -> TensorOut:
    """Build one tensor of `shape` (before transposition) from the parameters that are its parts."""
    schemes = {out_scheme(params[rule.key].scheme) for rule in rules}
    scheme = schemes.pop() if len(schemes) == 1 else Scheme.parse("float32")
    flip = rules[0].transposed

    def read() -> Array:
        if rules[0].part is None:
            whole = _values(rules[0], params, scheme)
        else:
            whole = np.empty(shape, scheme.dtype.host)
            for rule in rules:
                whole[rule.part.rows(shape[0]) if rule.part else slice(None)] = _values(rule, params, scheme)
                params[rule.key].release()
        whole = whole.reshape(stacked_shape(rules[0], shape))
        return np.ascontiguousarray(whole.swapaxes(-1, -2)) if flip else whole

    def release() -> None:
        for rule in rules:
            params[rule.key].release()

    stored = stacked_shape(rules[0], shape)
    stored = (*stored[:-2], stored[-1], stored[-2]) if flip else stored
    return TensorOut(tag=tag_of(scheme.dtype.host), shape=stored, read=read, done=release)


def _values(rule: NameRule, params: Params, scheme: Scheme) -> Array:
    packed = params[rule.key].packed()
    if packed.scheme == scheme:
        values = packed.codes().reshape(packed.shape)
    else:
        values = decode(packed).astype(scheme.dtype.host, copy=False)
    return values[pairs_from_halves(len(values), rule.interleaved_heads)] if rule.interleaved_heads else values
