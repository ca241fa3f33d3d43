"""Convert a model to another format or numeric type."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.dtypes import DType, Scheme
from volumetric.loaders.folded_inputs import fold_inputs
from volumetric.loaders.gguf_export import gguf_scheme, save_gguf
from volumetric.loaders.hf_export import out_scheme, save_hf
from volumetric.loaders.loom_write import save_loom
from volumetric.loaders.model import LoadedModel, open_model
from volumetric.loaders.native import NativeFacts, save_native
from volumetric.loaders.quantise import converted, target_schemes
from volumetric.loaders.text_files import text_files

if TYPE_CHECKING:
    from volumetric.loaders.peft_merge import Lora

logger = logging.getLogger(__name__)

Format = Literal["native", "hf", "gguf", "loom"]
FORMATS: Final[tuple[Format, ...]] = ("native", "hf", "gguf", "loom")
_ENDINGS: Final[dict[Format, str]] = {"gguf": ".gguf", "loom": ".json"}
"""Formats of one file, and what its name must end in to be opened again; the others are directories."""
_FOREIGN: Final[dict[str, tuple[str, ...]]] = {
    "ONNX": (".onnx", ".ort"),
    "PyTorch's pickles": (".pt", ".pth", ".pte", ".ptl", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".torchscript"),
    "Keras' and TensorFlow's files": (".h5", ".hdf5", ".keras", ".pb", ".tflite", ".savedmodel"),
    "JAX's files": (".msgpack", ".orbax", ".stablehlo"),
    "Core ML": (".mlmodel", ".mlpackage", ".mlmodelc"),
    "TensorRT, OpenVINO and ncnn": (".engine", ".plan", ".trt", ".xml", ".param", ".mnn"),
    "older formats of llama.cpp": (".ggml", ".ggjt"),
    "NumPy's files": (".npz", ".npy"),
    "archives": (".zip", ".tar", ".gz", ".tgz", ".7z", ".nemo", ".mar"),
}
"""What is not written, and endings that ask for it: nobody means a directory of such a name."""


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
    offline: bool = False,
) -> LoadedModel:
    """Read a model from anywhere and write it to `target`.

    Parameters
    ----------
    source : what `open_model` takes
    target : a directory, or a file that ends in ``.gguf`` or ``.json``
    format : ``"native"``, ``"hf"``, ``"gguf"`` or ``"loom"`` (JSON of the Go engine); None: by the ending of `target`,
        ``.gguf`` or ``.json``, else native
    dtype : numeric type of the result; None keeps what is stored
    bits : instead of `dtype`: bits a weight that the result has at most, scales included. Every matrix takes the type
        by which the predictions for `calibrate` lose least, see `volumetric.loaders.calibration.budget`; the result's
        `damage` has what each costs
    tensor_types : pattern of parameters, ``"*/down.weight"`` → type of the matrices that it matches, the first match
        counts; `dtype` and `bits` are for the others
    calibrate : text, or token ids, for which the rounding to `dtype` shall change least, see
        `volumetric.loaders.calibration`; None rounds each number for itself
    lora : adapter that is added to the weights before these are rounded, ``PATH``, ``PATH:SCALE`` or ``(path, scale)``;
        or a list of such
    context : tokens of a sequence that the result is for, no more than the model's. A GGUF file has no window that is
        as long as that, as it cuts nothing
    allow_differences : write a GGUF file also where llama.cpp is known to compute something else from it

    Returns
    -------
    The model that was written

    Raises
    ------
    CheckpointError
        The source cannot be read or the target cannot be written, or is the source.
    UnsupportedError
        The format cannot hold the model, or not in this numeric type.
    """
    target = Path(target)
    chosen = format_of(target, format)
    check_target(target, source)
    for requested_type in (dtype, *(tensor_types or {}).values()):
        if requested_type is not None:
            _check_dtype(Scheme.parse(requested_type), chosen)
    if bits is not None and dtype is not None:
        raise UnsupportedError("bits and dtype exclude each other", hint="give one of the two")
    if bits is None and calibrate is None and not tensor_types:
        model = open_merged(source, lora, dtype, offline=offline)
    else:
        model = open_merged(source, lora, offline=offline)
        if bits is not None and chosen == "hf":
            raise UnsupportedError("the Hugging Face layout holds plain floats", hint="use format native or gguf")
        model = rounded(model, dtype, bits=bits, named=tensor_types, text=calibrate, gguf=chosen == "gguf")
    if context is not None:
        model = within_context(model, context, chosen)
    save_model(target, model, chosen, allow_differences=allow_differences)
    return model


def within_context(model: LoadedModel, context: int, to: Format) -> LoadedModel:
    """Return a model for sequences of no more than `context` tokens.

    Raises
    ------
    UnsupportedError
        The model is not for as many, or the format does not have that number apart from the configuration.
    """
    if to not in ("gguf", "native"):
        raise UnsupportedError(
            f"the format {to} has no context of its own", hint="use format gguf or native with a context"
        )
    if context < 1 or (model.context_length and context > model.context_length):
        raise UnsupportedError(
            f"{model.name} is for sequences of 1 to {model.context_length} tokens, and not of {context}"
        )
    return replace(model, context_length=context)


def open_merged(
    source: str | os.PathLike[str],
    lora: Lora = (),
    dtype: str | DType | Scheme | None = None,
    *,
    offline: bool = False,
) -> LoadedModel:
    """Open a model with adapters added to its weights; parameters and errors as for `convert_model`."""
    if not lora and not isinstance(lora, str):
        return open_model(source, dtype=dtype, offline=offline)
    from volumetric.loaders.peft_merge import merge_adapters

    return merge_adapters(open_model(source, offline=offline), lora, dtype)


def rounded(
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
    gguf : with `bits`, choose among what a GGUF file can hold
    """
    if text is None and bits is None:
        targets = target_schemes(model.network, dtype, named)
        return replace(model, params=converted(model.params, targets))
    from volumetric.loaders.calibration import budgeted, calibrated

    if text is None:
        raise UnsupportedError("bits needs a text to measure damage on", hint="give calibrate=text (--calibrate FILE)")
    if isinstance(text, str):
        if model.tokenizer is None:
            raise UnsupportedError(f"{model.name} has no tokenizer", hint="give the text as token ids")
        text = model.tokenizer.encode(text)
    if bits is not None:
        targets, damage = budgeted(model, text, bits, named=named, gguf=gguf)
        return replace(model, params=calibrated(model, text, targets), damage=damage)
    if dtype is None and not named:
        raise UnsupportedError("calibration needs a type to round to", hint="give dtype='int4:g32', or bits=4.5")
    return replace(model, params=calibrated(model, text, target_schemes(model.network, dtype, named)))


def format_of(target: str | Path, requested_format: Format | None = None, default: Format = "native") -> Format:
    """Return the format to write `target` in: `requested_format`, or that of its ending, or `default`.

    Raises
    ------
    UnsupportedError
        There is no such format, or `target` is named in a way that nothing would open.
    """
    ending = Path(target).suffix.lower()
    foreign = next((name for name, endings in _FOREIGN.items() if ending in endings), None)
    if foreign is not None:
        raise UnsupportedError(
            f"{target}: {foreign} cannot be written",
            hint="formats are native and hf (directories, named without such an ending), gguf (.gguf) and loom (.json)",
        )
    chosen = requested_format or next((name for name, own in _ENDINGS.items() if own == ending), default)
    if chosen not in FORMATS:
        raise UnsupportedError(f"unknown format {chosen!r}", hint=f"one of {', '.join(FORMATS)}")
    required_ending = _ENDINGS.get(chosen, "")
    if ending == ".safetensors":
        raise UnsupportedError(
            f"{target}: a safetensors file holds tensors and no network",
            hint="name a directory: format hf writes model.safetensors and config.json into it",
        )
    if required_ending and Path(target).suffix != required_ending:
        named = Path(target).with_suffix(required_ending) if ending == required_ending else f"{target}{required_ending}"
        raise UnsupportedError(
            f"{target}: a file of the format {chosen} ends in {required_ending}", hint=f"name it {named}"
        )
    if not required_ending and ending in _ENDINGS.values():
        raise UnsupportedError(
            f"{target} is named as a file, and the format {chosen} is a directory", hint="drop one of the two"
        )
    return chosen


def check_target(target: str | Path, *sources: str | os.PathLike[str]) -> None:
    """Raise `CheckpointError` if what is read lies where something is to be written."""
    place = Path(target).expanduser()
    for source in filter(os.path.exists, sources):
        holders = (Path(source), Path(source).parent) if Path(source).is_file() else (Path(source),)
        if place.exists() and any(place.samefile(holder) for holder in holders):
            raise CheckpointError(f"{target} is what is read", hint="name another target")


def save_model(
    target: str | Path, model: LoadedModel, to: Format = "native", *, allow_differences: bool = False
) -> None:
    """Write an open model; parameters and errors as for `convert_model`.

    A model that standardises its inputs is written with the standardisation in its weights, but for format native, see
    `fold_inputs`. A format without a place for the names of classes leaves them out, with a warning.
    """
    if model.clocked is not None and to != "native":
        raise UnsupportedError(
            f"{model.name} runs tick by tick, which the format {to} cannot say", hint="use format native"
        )
    format_of(target, to)
    if to != "native":
        model = fold_inputs(model)
    if model.head is not None and to not in ("hf", "native"):
        raise UnsupportedError(
            f"{model.name} has a head that judges texts, which the format {to} cannot hold",
            hint="use format native or hf",
        )
    if to == "gguf":
        save_gguf(target, model, allow_differences=allow_differences)
    elif to == "hf":
        save_hf(target, model)
    elif to == "loom":
        if model.classes:
            logger.warning("%s: the file has no place for the names of the %d classes", target, len(model.classes))
        save_loom(target, model.network, model.params)
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


def _check_dtype(scheme: Scheme, to: Format) -> None:
    """Refuse to write as float32 what was asked for in another type."""
    if to == "hf" and out_scheme(scheme) != scheme:
        raise UnsupportedError(
            f"the Hugging Face layout holds plain floats, not {scheme}", hint="use format native or gguf, or dtype bf16"
        )
    if to == "gguf" and gguf_scheme(scheme, (256, 256)) != scheme:
        raise UnsupportedError(
            f"GGUF has no tensors of {scheme}",
            hint="it has float32, float16, bfloat16, int8:g32, int4:g32, uint4:g32 and block formats such as q4_k",
        )
