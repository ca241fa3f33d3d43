"""Convert a model to another format or numeric type."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.clocked import Clocked
from volumetric.dtypes import DType, Scheme
from volumetric.loaders.folded_inputs import fold_inputs
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.gguf_export import gguf_scheme, save_gguf
from volumetric.loaders.hf_export import out_scheme, save_hf
from volumetric.loaders.loaded_model import LoadedModel, open_model
from volumetric.loaders.loom_write import save_loom
from volumetric.loaders.model_location import NATIVE_NAME
from volumetric.loaders.named_arrays import save_arrays
from volumetric.loaders.native_checkpoint import NativeFacts, save_native
from volumetric.loaders.target_schemes import convert_params, target_schemes
from volumetric.loaders.text_files import text_files
from volumetric.network import Network, Params

if TYPE_CHECKING:
    from volumetric.loaders.peft_merge import Lora

logger: logging.Logger = logging.getLogger(__name__)

Format = Literal["native", "hf", "gguf", "loom", "onnx", "safetensors", "npz", "python", "c"]
FORMATS: Final[tuple[Format, ...]] = ("native", "hf", "gguf", "loom", "onnx", "safetensors", "npz", "python", "c")
_ENDINGS: Final[dict[Format, str]] = {
    "gguf": ".gguf",
    "loom": ".json",
    "onnx": ".onnx",
    "safetensors": ".safetensors",
    "npz": ".npz",
    "python": ".py",
    "c": ".c",
}
"""Formats with a single file, and its required suffix; the others are directories."""
_FOREIGN: Final[dict[str, tuple[str, ...]]] = {
    "onnxruntime's own format": (".ort",),
    "PyTorch's pickles": (".pt", ".pth", ".pte", ".ptl", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".torchscript"),
    "Keras' and TensorFlow's files": (".h5", ".hdf5", ".keras", ".pb", ".tflite", ".savedmodel"),
    "JAX's files": (".msgpack", ".orbax", ".stablehlo"),
    "Core ML": (".mlmodel", ".mlpackage", ".mlmodelc"),
    "TensorRT, OpenVINO and ncnn": (".engine", ".plan", ".trt", ".xml", ".param", ".mnn"),
    "older formats of llama.cpp": (".ggml", ".ggjt"),
    "NumPy's files without names": (".npy",),
    "archives": (".zip", ".tar", ".gz", ".tgz", ".7z", ".nemo", ".mar"),
}
"""Unsupported formats and their suffixes, which are never meant as names of directories."""


def convert_model(
    source: str | os.PathLike[str],
    target: str | Path,
    *,
    format: Format | None = None,  # noqa: A002  (the word of the command line)
    dtype: str | DType | Scheme | None = None,
    bits: float | None = None,
    tensor_types: Mapping[str, str] | None = None,
    calibrate: str | Sequence[int] | None = None,
    lora: Lora = (),
    context: int | None = None,
    allow_differences: bool = False,
    rows: int | None = None,
    offline: bool = False,
    guess: bool | Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Read a model from any source and write it to `target`.

    Parameters
    ----------
    source : as for `open_model`
    target : a directory, or a file that ends in one of the suffixes below
    format : ``"native"``, ``"hf"``, ``"gguf"``, ``"onnx"``, ``"loom"`` (JSON of the Go engine), ``"safetensors"`` or
        ``"npz"`` (the weights alone, by the network's keys), ``"python"`` or ``"c"`` (source code that computes the
        network); None: by the suffix of `target`, ``.gguf``, ``.onnx``, ``.json``, ``.safetensors``, ``.npz``, ``.py``
        or ``.c``, else native
    dtype : numeric type of the result; None keeps the stored types
    bits : instead of `dtype`: maximum bits per weight of the result, including scales. The types of matrices are chosen
        to minimise the damage to predictions for `calibrate`, see `volumetric.loaders.calibration.bit_budget`; the
        result's `damage` has the cost of each
    tensor_types : pattern of parameters, ``"*/down.weight"`` → type of the matrices that it matches; the first match
        counts; `dtype` and `bits` are for the others
    calibrate : text, or token ids, on which the error of rounding to `dtype` is minimised, see
        `volumetric.loaders.calibration`; None rounds each value to nearest
    lora : adapter to add to the weights before rounding, ``PATH``, ``PATH:SCALE`` or ``(path, scale)``; or a list of
        these
    context : context length of the result, at most the model's. Windows of at least this length have no effect and are
        left out of a GGUF file
    allow_differences : whether to write a GGUF file even if llama.cpp is known to compute different results from it
    rows : number of rows that an ONNX file takes; None: any number
    guess : as for `open_model`

    Returns
    -------
    The written model

    Raises
    ------
    CheckpointError
        The source cannot be read, the target cannot be written, or both are the same.
    UnsupportedError
        The format cannot store the model, or not in this numeric type.
    """
    target = Path(target)
    chosen = format_of(target, format)
    check_target(target, source)
    for requested_type in (dtype, *(tensor_types or {}).values()):
        if requested_type is not None:
            _check_dtype(Scheme.parse(requested_type), chosen)
    if bits is not None and dtype is not None:
        raise UnsupportedError("bits and dtype exclude each other", hint="give only one of them")
    if bits is None and calibrate is None and not tensor_types:
        model = open_merged(source, lora, dtype, offline=offline, guess=guess)
    else:
        model = open_merged(source, lora, offline=offline, guess=guess)
        if bits is not None and chosen == "hf":
            raise UnsupportedError("the Hugging Face layout stores only plain floats", hint="use format native or gguf")
        model = convert_weights(model, dtype, bits=bits, named=tensor_types, text=calibrate, gguf=chosen == "gguf")
    if context is not None:
        model = within_context(model, context, chosen)
    save_model(target, model, chosen, allow_differences=allow_differences, rows=rows)
    return model


def within_context(model: LoadedModel, context: int, to: Format) -> LoadedModel:
    """Return a model for sequences of at most `context` tokens.

    Raises
    ------
    UnsupportedError
        The model's context is shorter, or the format stores the context only in the configuration.
    """
    if to not in ("gguf", "native"):
        raise UnsupportedError(
            f"the format {to} does not store a context separately", hint="use format gguf or native for another context"
        )
    if context < 1 or (model.context_length and context > model.context_length):
        raise UnsupportedError(
            f"{model.name} supports sequences of 1 to {model.context_length} tokens, got context {context}"
        )
    return replace(model, context_length=context)


def open_merged(
    source: str | os.PathLike[str],
    lora: Lora = (),
    dtype: str | DType | Scheme | None = None,
    *,
    offline: bool = False,
    guess: bool | Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Open a model with adapters added to its weights; parameters and errors as for `convert_model`."""
    if not lora and not isinstance(lora, str):
        return open_model(source, dtype=dtype, offline=offline, guess=guess)
    from volumetric.loaders.peft_merge import merge_adapters

    return merge_adapters(open_model(source, offline=offline, guess=guess), lora, dtype)


def convert_weights(
    model: LoadedModel,
    dtype: str | DType | Scheme | None = None,
    *,
    bits: float | None = None,
    named: Mapping[str, str] | None = None,
    text: str | Sequence[int] | None = None,
    gguf: bool = False,
) -> LoadedModel:
    """Return a model with its weights in other types; parameters and errors as for `convert_model`.

    Parameters
    ----------
    gguf : with `bits`, choose only types that a GGUF file can store
    """
    if text is None and bits is None:
        targets = target_schemes(model.network, dtype, named)
        return replace(model, params=convert_params(model.params, targets))
    from volumetric.loaders.calibration import calibrate_params, schemes_for_budget

    if text is None:
        raise UnsupportedError("bits needs a text to measure the damage", hint="give calibrate=text (--calibrate FILE)")
    if isinstance(text, str):
        if model.tokenizer is None:
            raise UnsupportedError(f"{model.name} has no tokenizer", hint="give the text as token ids")
        text = model.tokenizer.encode(text)
    if bits is not None:
        targets, damage = schemes_for_budget(model, text, bits, named=named, gguf=gguf)
        return replace(model, params=calibrate_params(model, text, targets), damage=damage)
    if dtype is None and not named:
        raise UnsupportedError("calibrate needs a type to round to", hint="give dtype='int4:g32', or bits=4.5")
    return replace(model, params=calibrate_params(model, text, target_schemes(model.network, dtype, named)))


def format_of(
    target: str | os.PathLike[str], requested_format: Format | None = None, default: Format = "native"
) -> Format:
    """Return the format for `target`: `requested_format`, or that of its suffix, or `default`.

    Raises
    ------
    UnsupportedError
        The format is unknown, or `target` has a name that could not be opened.
    """
    ending = Path(target).suffix.lower()
    foreign = next((name for name, endings in _FOREIGN.items() if ending in endings), None)
    if foreign is not None:
        raise UnsupportedError(
            f"{target}: {foreign} cannot be written",
            hint="use native or hf (directories without this suffix), or a file that ends in "
            + ", ".join(_ENDINGS.values()),
        )
    chosen = requested_format or next((name for name, own in _ENDINGS.items() if own == ending), default)
    if chosen not in FORMATS:
        raise UnsupportedError(f"unknown format {chosen!r}", hint=f"use one of {', '.join(FORMATS)}")
    required_ending = _ENDINGS.get(chosen, "")
    if required_ending and Path(target).suffix != required_ending:
        named = Path(target).with_suffix(required_ending) if ending == required_ending else f"{target}{required_ending}"
        raise UnsupportedError(
            f"{target}: a file in the format {chosen} must have a name that ends in {required_ending}",
            hint=f"name it {named}",
        )
    if not required_ending and ending in _ENDINGS.values():
        raise UnsupportedError(
            f"{target} has the suffix of a file, but the format {chosen} is a directory",
            hint=f"name it {Path(target).stem}; volumetric convert writes the file from it",
        )
    return chosen


def check_target(target: str | Path, *sources: str | os.PathLike[str]) -> None:
    """Raise `CheckpointError` if the target would overwrite the source, or be lost or mixed among its files."""
    place = Path(target).expanduser()
    for source in filter(os.path.exists, sources):
        holders = (Path(source), Path(source).parent) if Path(source).is_file() else (Path(source),)
        if place.exists() and any(place.samefile(holder) for holder in holders):
            raise CheckpointError(f"{target} is also the source", hint="give another target")
        if not Path(source).is_dir() or Path(source).resolve() not in place.resolve().parents:
            continue
        # A file may stand beside a downloaded model, as llama.cpp writes it; a native directory is replaced as a whole.
        if not place.suffix or (Path(source) / NATIVE_NAME).exists():
            raise CheckpointError(
                f"{target} is inside {source}, the directory of the model that is read, whose files would no longer be "
                "those of one model",
                hint="give a target outside that directory",
            )


def save_model(
    target: str | Path,
    model: LoadedModel,
    to: Format = "native",
    *,
    allow_differences: bool = False,
    rows: int | None = None,
) -> None:
    """Write an open model; parameters and errors as for `convert_model`.

    The standardisation of inputs is written into the weights, see `fold_inputs`, except for formats native and onnx. A
    format that cannot store names of classes leaves them out, with a warning.
    """
    if model.clocked is not None and to != "native":
        raise UnsupportedError(
            f"{model.name} runs tick by tick, which the format {to} cannot store", hint="use format native"
        )
    format_of(target, to)
    if rows is not None and to != "onnx":
        raise UnsupportedError(f"the format {to} takes any number of rows", hint="leave rows out, or use format onnx")
    if to not in ("native", "onnx"):
        model = fold_inputs(model)
    if model.head is not None and to not in ("hf", "native"):
        raise UnsupportedError(
            f"{model.name} has a text classification head, which the format {to} cannot store",
            hint="use format native or hf",
        )
    if to == "gguf":
        save_gguf(target, model, allow_differences=allow_differences)
    elif to == "hf":
        save_hf(target, model)
    elif to in ("safetensors", "npz"):
        save_arrays(target, model.params)
    elif to in ("python", "c"):
        from volumetric.codegen import save_c, save_python

        (save_python if to == "python" else save_c)(target, model.network, model.params, classes=model.classes)
    elif to == "loom":
        if model.classes:
            logger.warning("%s: the file cannot store the names of the %d classes", target, len(model.classes))
        save_loom(target, model.network, model.params)
    elif to == "onnx":
        from volumetric.loaders.onnx_export.save_onnx import save_onnx

        save_onnx(target, model.network, model.params, rows=rows, inputs=model.inputs, classes=model.classes)
    else:
        facts = NativeFacts(
            context_length=model.context_length,
            inputs=model.inputs,
            classes=model.classes,
            features=model.features,
            hidden=model.hidden,
            damage=model.damage,
        )
        files, machine = text_files(model), model.clocked
        save_native(target, model.network, model.params, facts=facts, files=files, head=model.head, clocked=machine)


def save_network(
    target: str | os.PathLike[str],
    network: Network,
    params: Params,
    *,
    facts: NativeFacts | None = None,
    files: Mapping[str, bytes] | None = None,
    clocked: Clocked | None = None,
) -> None:
    """Write a network in the format that the suffix of `target` names, as `convert_model` does; else natively.

    Parameters
    ----------
    facts, files, clocked : see `save_native`

    Raises
    ------
    UnsupportedError : no format has this suffix, or the format cannot store the network
    CheckpointError : the target cannot be written
    """
    place, facts = Path(target), facts or NativeFacts()
    chosen = format_of(place)
    if chosen == "native":
        save_native(place, network, params, facts=facts, files=files, clocked=clocked)
        return
    if files:
        raise UnsupportedError(f"{place}: the format {chosen} cannot store {', '.join(files)}", hint="save a directory")
    model = LoadedModel(
        name=place.stem,
        network=network,
        params=params,
        tokenizer=None,
        chat_template=None,
        generation=GenerationDefaults(),
        context_length=facts.context_length,
        path=place,
        inputs=facts.inputs,
        classes=facts.classes,
        features=facts.features,
        clocked=clocked,
    )
    save_model(place, model, chosen)


def _check_dtype(scheme: Scheme, to: Format) -> None:
    """Refuse to write float32 if another type was requested."""
    if to == "hf" and out_scheme(scheme) != scheme:
        raise UnsupportedError(
            f"the Hugging Face layout stores only plain floats, not {scheme}",
            hint="use format native or gguf, or dtype bf16",
        )
    if to == "gguf" and gguf_scheme(scheme, (256, 256)) != scheme:
        raise UnsupportedError(
            f"GGUF cannot store tensors of {scheme}",
            hint="use float32, float16, bfloat16, int8:g32, int4:g32, uint4:g32 or a block format such as q4_k",
        )
