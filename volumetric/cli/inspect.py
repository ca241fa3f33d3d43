"""The command ``inspect``: the structure of a model. It opens no device, and reads weights only to detect a model."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from volumetric.base._typing import ROWS
from volumetric.base.progress import byte_size
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.inspect_program import parts_of, show_clocked, show_program, show_programs
from volumetric.cli.options import ModelSource, OutputOptions, SourceOptions, choose_model
from volumetric.detect import detect_model
from volumetric.devices.gpu.kernels.block_layout import LAYOUTS
from volumetric.dtypes import Scheme
from volumetric.generate.footprint import footprint
from volumetric.layers import Embedding
from volumetric.layers.layer_spec import show_shape
from volumetric.loaders import LoadedModel, open_model
from volumetric.network import OUTPUT, Network, Params
from volumetric.network.blueprint import blueprint
from volumetric.network.layer_rows import LayerRow, layer_rows
from volumetric.program.layer.program_layer import Program

if TYPE_CHECKING:
    from volumetric.detect import Detection

_NAMES = 12
"""Most names of classes that are shown; --json shows all."""


def inspect(
    model: ModelSource = None,
    *,
    tensors: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    clocked: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    window: int = 64,
    checkpoint: int = 0,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    source: SourceOptions = SourceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Show the structure of a model: layers, tensors, numeric types, size.

    For safetensors without a configuration: the detected model, its certainty, and the reasons. For a program, as
    x.program.json or as a layer: its regions, edges, clocks and ports. For an ONNX file: its inputs, outputs and
    operators.

    Parameters
    ----------
    model : str
        The model, see generate.
    tensors : bool
        List every tensor.
    clocked : bool
        Show how it runs tick by tick instead: latencies, buckets, state of a stream, memory of gradients.
    window : int
        With --clocked: ticks of backpropagation through time.
    checkpoint : int
        With --clocked: ticks between two stored states, from which the others are recomputed; 0 stores all.
    json : bool
        Print one JSON object with everything.
    """
    output.apply()
    if window < 1 or checkpoint < 0:
        raise UsageError(f"--window must be 1 or more and --checkpoint 0 or more, got {window} and {checkpoint}")
    chosen = choose_model(model)
    if chosen.endswith(".onnx"):
        from volumetric.cli.onnx_files import inspect_onnx, onnx_path

        path = onnx_path(chosen)
        return exits.OK if path is None else inspect_onnx(path, tensors=tensors, as_json=json)
    if chosen.endswith(".program.json"):
        show_program(chosen, json=json)
        return exits.OK
    with console.progress(f"reading {chosen}…"):
        detection = detect_model(chosen, source.guessed(), offline=source.offline)
    if detection is not None:
        show_detection(detection, json=json, tensors=tensors)
        return exits.OK
    with console.progress(f"reading {chosen}…"):
        loaded = open_model(chosen, dtype=source.dtype, offline=source.offline, strict=source.strict)
    if clocked:
        show_clocked(loaded, window=window, checkpoint=checkpoint, json=json)
        return exits.OK
    facts = overview(loaded)
    if json:
        layers = blueprint(loaded.network, loaded.params).describe()["layers"]
        described = facts | {"layers": layers, "tensors": _tensors(loaded)}
        console.write_json(described, indent=2)
        return exits.OK
    facts["size"] = byte_size(facts["size"])
    width = max(map(len, facts)) + 2
    console.write("".join(f"{name + ':':{width}}{_text(value)}\n" for name, value in facts.items()))
    columns = ("where", "layer", "output", "weights", "shape")
    console.table(columns, [_cells(row) for row in layer_rows(loaded.network)], right=("weights",), fold=("shape",))
    show_programs(loaded.network)
    if tensors:
        rows = [
            [t["name"], "×".join(map(str, t["shape"])), t["dtype"], byte_size(t["bytes"])]
            + ([f"{t['damage']:.2g}" if "damage" in t else ""] if loaded.damage else [])
            for t in _tensors(loaded)
        ]
        head = ("tensor", "shape", "dtype", "size", *(("damage, nats",) if loaded.damage else ()))
        console.table(head, rows, right=head[3:])
    return exits.OK


def overview(loaded: LoadedModel) -> dict[str, Any]:
    """Return the facts about a model, in display order."""
    weight = footprint(loaded.params)
    network = loaded.network
    kinds = [spec.kind for spec in network.layers.values()]
    return {
        "model": loaded.name,
        "path": loaded.path,
        **({"architecture": loaded.config["model_type"]} if loaded.config.get("model_type") else {}),
        "grid": "×".join(map(str, network.grid.sides)),
        **_ends(network),
        "layers": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "parameters": weight.elements,
        "size": weight.nbytes,
        "bits_per_weight": round(weight.bits_per_weight, 2),
        "dtypes": {str(scheme): count for scheme, count in weight.schemes.items()},
        **_fabrics(network, loaded.params),
        **_repacked(loaded),
        **(_of_texts(loaded) if is_language_model(loaded) else _of_rows(loaded)),
    }


def is_language_model(loaded: LoadedModel) -> bool:
    """Whether a model reads ids of text; a network of tasks such as majority reads ids that no tokenizer makes."""
    return loaded.network.input_dtype == "int32" and (loaded.tokenizer is not None or "model_type" in loaded.config)


def _of_texts(loaded: LoadedModel) -> dict[str, Any]:
    """Facts about a language model."""
    network = loaded.network
    return {
        "context": loaded.context_length,
        "vocabulary": loaded.config.get("vocab_size") or network.shapes[network.taps[OUTPUT]][-1],
        "tokenizer": loaded.tokenizer is not None,
        "chat_template": loaded.chat_template is not None,
        "generation": {
            name: value for name, value in dataclasses.asdict(loaded.generation).items() if value not in (None, ())
        },
    }


def _of_rows(loaded: LoadedModel) -> dict[str, Any]:
    """Facts about a model of features or bare ids: its input and output rows, and their meaning."""
    network = loaded.network
    first = next(iter(network.layers.values()))
    ids = f"ids 0…{first.num_embeddings - 1} " if isinstance(first, Embedding) else ""
    ends = {
        "reads": ids + show_shape((ROWS, *network.input_shape)),
        "makes": show_shape(network.shapes[network.taps[OUTPUT]]),
    }
    return {
        **ends,
        **({"standardised": True} if loaded.inputs is not None else {}),
        **({"classes": list(loaded.classes)} if loaded.classes else {}),
    }


def _fabrics(network: Network, params: Params) -> dict[str, Any]:
    """Facts about fabrics: nodes, edges, populations, the state of a stream, rows from inputs to outputs."""
    there = {str(coord): spec for coord, spec in network.layers.items() if spec.kind == "fabric"}
    if not there:
        return {}
    from volumetric.fabric.compile import fabric_facts

    facts: dict[str, Any] = {}
    for where, spec in there.items():
        key = network.resolve(f"{where}/living")
        facts[where] = fabric_facts(spec, params[key].values() if key in params else None)  # pyright: ignore[reportArgumentType]  (of the kind)
    return {"fabrics": facts}


def _repacked(loaded: LoadedModel) -> dict[str, Any]:
    """Block formats that are larger on GPUs, which repack the same values into codes that a shader can extract."""
    sizes = {}
    for name in sorted({store.scheme.blocks.name for store in loaded.params.values() if store.scheme.blocks}):
        on_gpu, stored = LAYOUTS[name].bits_per_weight, Scheme.parse(name).bits_per_weight((1, 1024))
        if on_gpu > stored:
            sizes[name] = f"{on_gpu:.2f} bits a weight"
    return {"repacked_on_gpus": sizes} if sizes else {}


def _ends(network: Network) -> dict[str, Any]:
    """Inputs and outputs by name, if there are several: type, shape and layer."""
    added = {"add": " (added)", "replace": ""}
    inputs = {
        name: f"{port.dtype} {show_shape((ROWS, *port.shape))} at {port.coord}{added[port.combine]}"
        for name, port in network.inputs.items()
    }
    outputs = {name: f"of {coord}" for name, coord in network.outputs.items()}
    return ({"inputs": inputs} if inputs else {}) | ({"outputs": outputs} if outputs else {})


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value[:_NAMES])) + (f" … ({len(value)})" if len(value) > _NAMES else "")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _cells(row: LayerRow) -> list[str]:
    """Return the cells of a row: place, layer, shape of its output, weights and their shapes."""
    output = "×".join("T" if axis < 0 else str(axis) for axis in row.output)
    shapes = parts_of(row.spec.program) if isinstance(row.spec, Program) else "  ".join(row.tensors)
    return [row.where, row.label, output, f"{row.weights:,}" if row.weights else "", shapes]


def _tensors(loaded: LoadedModel) -> list[dict[str, Any]]:
    return [
        {
            "name": key,
            "shape": list(store.shape),
            "dtype": str(store.scheme),
            "bytes": math.ceil(math.prod(store.shape) * store.scheme.bits_per_weight(store.shape) / 8),
            **({"damage": loaded.damage[key]} if key in loaded.damage else {}),
        }
        for key, store in loaded.params.items()
    ]


def show_detection(detection: Detection, *, json: bool, tensors: bool) -> None:
    """Print a detection: its result, reasons and unknowns.

    Parameters
    ----------
    json : print one JSON object
    tensors : print each layer with the names of its tensors
    """
    if json:
        console.write_json(describe(detection), indent=2)
        return
    from volumetric.detect.findings import collapse_findings

    console.write(f"detected:   {detection.architecture or 'no network'} ({detection.certainty})\n")
    console.write(f"because:    {detection.reason}\n")
    shown = list(detection.findings if tensors else collapse_findings(detection.findings))
    columns = ("tensors", "taken for", "certainty", "because")
    console.table(columns, [[f.path or "(root)", f.what or "not recognised", f.certainty, f.reason] for f in shown])
    if tensors:
        names = [[name, f.path or "(root)"] for f in shown for name in f.tensors]
        console.table(("tensor", "of"), names)
    rows = [[name, str(one.value), one.reason] for name, one in detection.known.items()]
    rows += [[name, value, "by convention; --assume overrides them"] for name, value in detection.assumed.items()]
    rows += [[name, "?", why] for name, why in detection.missing.items()]
    if rows:
        console.table(("value", "is", "because"), rows)
    if detection.left_out:
        console.table(("left out", "because"), [[name, why] for name, why in detection.left_out.items()])
    if detection.missing:
        console.note("to run it, add " + " ".join(f"--assume {name}=…" for name in detection.missing))


def describe(detection: Detection) -> dict[str, Any]:
    """Return a detection as plain data."""
    return {
        "architecture": detection.architecture,
        "certainty": detection.certainty,
        "reason": detection.reason,
        "findings": [
            {"path": f.path, "what": f.what, "certainty": f.certainty, "reason": f.reason, "tensors": list(f.tensors)}
            for f in detection.findings
        ],
        "known": {name: {"value": one.value, "reason": one.reason} for name, one in detection.known.items()},
        "assumed": dict(detection.assumed),
        "missing": dict(detection.missing),
        "left_out": dict(detection.left_out),
    }
