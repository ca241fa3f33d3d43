"""The command ``convert``: a model in another numeric type or file format."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from volumetric.base.errors import CheckpointError
from volumetric.base.progress import byte_size
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import Adapters, OutputOptions, check_dtype, guess_of
from volumetric.cli.overwriting import Overwrite, check_new
from volumetric.cli.perplexity import WINDOW
from volumetric.dtypes import Scheme
from volumetric.generate.footprint import footprint
from volumetric.loaders import LoadedModel
from volumetric.loaders.convert_model import Format, convert_model, open_merged
from volumetric.loaders.json_file import read_bytes
from volumetric.loaders.named_arrays import ARRAY_FILES, convert_arrays
from volumetric.loaders.native_checkpoint import MAX_NETWORK_BYTES
from volumetric.loaders.target_schemes import scheme_that_fits

MEASURED = 2048
"""Most tokens that a report is measured on."""


def convert(
    source: str,
    target: Path,
    *,
    dtype: Annotated[str | None, Parameter(name=["--dtype", "--quantize", "-q"])] = None,
    bits: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    tensor_type: Annotated[list[str] | None, Parameter(negative="")] = None,
    calibrate: Path | None = None,
    lora: Adapters = None,
    context: Annotated[int | None, Parameter(validator=validators.Number(gte=1))] = None,
    allow_differences: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    form: Annotated[Format | None, Parameter(name="--format")] = None,
    rows: Annotated[int | None, Parameter(validator=validators.Number(gte=1))] = None,
    overwrite: Overwrite = False,
    offline: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    guess: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    assume: Annotated[list[str] | None, Parameter(negative="", show_default=False, consume_multiple=False)] = None,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Convert a model to another numeric type or file format.

    Parameters
    ----------
    source : str
        The model, see generate.
    target : path
        Directory or file to write.
    dtype : str
        Scheme of the weights: bf16, fp8, int8, int4:g32, q4_0, …; default: as stored.
    bits : float
        Instead of --dtype: most bits per weight, scales included. The type of each matrix is chosen so that predictions
        for the text of --calibrate lose least.
    tensor_type : list
        PATTERN=TYPE: type of the matrices whose names match, such as "*/down.weight=q6_k"; may be repeated.
    calibrate : path
        Text file. Weights of less than 8 bits are rounded so that the layers' outputs for this text change least; its
        last fifth is held out, to compare the result with plain rounding.
    lora : list
        Directory of a LoRA adapter saved by PEFT, PATH or PATH:SCALE, to merge into the weights before rounding; may be
        repeated.
    context : int
        Most tokens of a sequence, to shorten the model's context. A GGUF file then omits attention windows of that
        length or more, which have no effect.
    allow_differences : bool
        Write a GGUF file even if llama.cpp is known to compute other results from it than the model does.
    form : str
        hf: safetensors and config.json; native: network.json and weights.safetensors; gguf: one file; onnx: one file,
        opset 21; loom: JSON of the Go engine; safetensors, npz: the weights alone, also of a file of weights such as
        x.pt; python, c: source code of a small network. Default: by the ending of TARGET (.gguf, .onnx, .json,
        .safetensors, .npz, .py, .c), else native.
    rows : int
        Number of rows (samples or tokens) that an ONNX file takes; default: any number.
    overwrite : bool
        Replace an existing TARGET.
    offline : bool
        Use local files only.
    guess : bool
        Detect the model of weights without a configuration from their names and shapes.
    assume : list
        A fact that names and shapes do not determine, as NAME=VALUE; may be repeated. Implies --guess.
    """
    output.apply()
    check_dtype(dtype)
    check_new(target, source, overwrite=overwrite)
    if bits is not None and (dtype is not None or calibrate is None):
        raise UsageError(
            "--bits chooses types by their loss on a text", hint="add --calibrate TEXT, and leave --dtype out"
        )
    if target.suffix in (".py", ".c") and Path(source).suffix == ".json" and _is_genome(Path(source)):
        from volumetric.evolution.genome import Genome
        from volumetric.evolution.genome_code import save_genome_source  # not needed for models

        save_genome_source(target, Genome.load(source))
        console.write(f"{target}: a genome, {byte_size(target.stat().st_size)}\n")
        return exits.OK
    if target.suffix in ARRAY_FILES and form in (None, target.suffix[1:]):
        count = convert_arrays(source, target)
        if count is not None:
            console.write(f"{target}: {console.plural(count, 'tensor')}, {byte_size(target.stat().st_size)}\n")
            return exits.OK
    guessed = guess_of(guess, assume or ())
    named = _types_by_pattern(tensor_type or [])
    text, held_out = (None, "") if calibrate is None else _split(calibrate.read_text(encoding="utf-8"))
    with console.progress(f"converting {source}…"):
        model = convert_model(
            source,
            target,
            format=form,
            dtype=dtype,
            bits=bits,
            tensor_types=named,
            calibrate=text,
            lora=lora or (),
            context=context,
            allow_differences=allow_differences,
            rows=rows,
            offline=offline,
            guess=guessed,
        )
    files = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    written = byte_size(sum(path.stat().st_size for path in files))
    main = footprint(model.params).dtype if dtype is None else str(Scheme.parse(dtype))
    console.write(f"{target}: {model.name} as {main}, {written}\n")
    for line in [*_other_types(model, dtype), *(_decoded(model) if target.suffix == ".onnx" else [])]:
        console.write(f"{line}\n")
    if model.damage:
        chosen = ((key, model.params[key], nats) for key, nats in model.damage.items())
        table = [
            (key, "×".join(map(str, store.shape)), str(store.scheme), f"{nats:.2g}") for key, store, nats in chosen
        ]
        console.table(("tensor", "shape", "type", "damage, nats"), table, right=("damage, nats",))
        console.write(f"{footprint(model.params).bits_per_weight:.2f} bits a weight\n")
    if held_out:
        report(
            lambda scheme: open_merged(source, lora or (), scheme, offline=offline, guess=guessed),
            model,
            dtype,
            held_out,
        )
    return exits.OK


def _is_genome(path: Path) -> bool:
    """Whether a file of JSON is a genome of `evolve`, such as ``champion.json``."""
    try:
        head = json.loads(read_bytes(path, MAX_NETWORK_BYTES))
    except (CheckpointError, ValueError, RecursionError):
        return False  # the error of a model's file says more
    from volumetric.evolution.genome import FORMAT  # not needed for models

    return isinstance(head, dict) and head.get("format") == FORMAT


def _other_types(model: LoadedModel, dtype: str | None) -> list[str]:
    """Describe the share of weights with another type than requested, because their rows do not fill its blocks."""
    target = None if dtype is None else Scheme.parse(dtype)
    if target is None or target.blocks is None:
        return []
    counts, total = Counter[tuple[int, str]](), 0
    for store in model.params.values():
        total += math.prod(store.shape)
        if len(store.shape) > 1 and store.scheme == scheme_that_fits(target, store.shape) != target:
            counts[store.shape[-1], str(store.scheme)] += math.prod(store.shape)
    return [
        f"{100 * count / total:.0f} % of the weights are {scheme}: "
        f"rows of {k} do not fill its blocks of {target.blocks.size}"
        for (k, scheme), count in counts.most_common()
    ]


def _decoded(model: LoadedModel) -> list[str]:
    """Describe the share of weights whose codes an ONNX file cannot hold."""
    from volumetric.loaders.onnx_export.onnx_weights import has_codes

    counts = {str(scheme): (count, has_codes(scheme)) for scheme, count in model.params.schemes().items()}
    total = sum(count for count, _ in counts.values())
    return [
        f"{100 * count / total:.0f} % of the weights are {scheme}: ONNX has no such codes, they are written as float32"
        for scheme, (count, held) in counts.items()
        if not held
    ]


def _types_by_pattern(texts: list[str]) -> dict[str, str]:
    """Return pattern → type of ``PATTERN=TYPE`` texts."""
    named: dict[str, str] = {}
    for text in texts:
        pattern, _, dtype = text.rpartition("=")
        if not pattern:
            raise UsageError(f"--tensor-type must be PATTERN=TYPE, got {text!r}", hint='as "*/down.weight=q6_k"')
        check_dtype(dtype, "--tensor-type")
        named[pattern] = dtype
    return named


def _split(text: str) -> tuple[str, str]:
    """Return the calibration text, and the held-out last fifth."""
    cut = len(text) * 4 // 5
    return text[:cut], text[cut:]


def report(opened: Callable[[str | None], LoadedModel], model: LoadedModel, dtype: str | None, text: str) -> None:
    """Print perplexity, KL and size of a calibrated model and of plain rounding, on held-out text.

    `opened` opens the model in a numeric type; None: as stored. Without `dtype` there is no single type to compare
    with.
    """
    from volumetric.devices.named_devices import open_device
    from volumetric.generate.model import Model
    from volumetric.generate.model_comparison import compare_models
    from volumetric.run.device import RunOptions

    rows, before = [], ""
    options, device = RunOptions(context=WINDOW, compute="float32"), open_device("cpu")
    original = opened(None)
    if original.tokenizer is None:
        return
    ids = original.tokenizer.encode(text)[:MEASURED]
    if len(ids) < 2:
        return
    with console.progress("measuring…"), Model(original, device, options) as right:
        size = byte_size(right.footprint.nbytes)
        models = {} if dtype is None else {"to nearest": opened(dtype)}
        for name, loaded in (models | {"calibrated": model}).items():
            with Model(loaded, device, options) as other:
                c = compare_models(right, other, ids, window=WINDOW)
                kl, same = f"{c.kl:.5f} ± {c.kl_error:.5f}", f"{100 * c.top1:.1f} %"
                before = f"{c.perplexity_a:.3f}"
                rows.append((name, byte_size(other.footprint.nbytes), f"{c.perplexity_b:.3f}", kl, same))
        rows.insert(0, ("as it was", size, before, "", ""))
    console.table(("rounding", "weights", "perplexity", "KL, nats", "same token"), rows)
