"""Hints for the page of an export: which view fits the network, with names and ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.web.evolved_task import ACTIONS, CARTPOLE, EvolvedTask

FOR_KIND: Final[Mapping[str, str]] = {
    "rows": "numbers",
    "sequences": "numbers",
    "stream": "stream",
    "ticks": "stream",
    "language": "chat",
    "encoder": "similarity",
}
"""Kind of network → view, unless another one fits better."""
VIEWS: Final = frozenset(
    {
        *FOR_KIND.values(),
        "field",
        "image",
        "cartpole",
        "genomes",
        "learn_digits",
        "learn_numbers",
        "learn_cartpole",
        "neat",
    }
)
"""Names of the page's views."""
_FLAT_IMAGES: Final = {64: (8, 8), 784: (28, 28)}
"""Numbers of inputs of classifiers that are taken for images: of scikit-learn's digits, and of MNIST."""
_MARGIN: Final = 0.25
_DEVIATIONS: Final = 2.5


def page_hints(
    network: Mapping[str, Any], task: EvolvedTask | None = None, *, image: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the entry ``ui`` of network.json.

    Parameters
    ----------
    network : the other entries
    task : what the network was evolved for, or is for
    image : height and width of the image that the network's input is; None: by its shape

    Raises
    ------
    SpecError : the input does not have that many numbers
    """
    kind, inputs, outputs = network["kind"], network["inputs"], network["outputs"]
    population = network.get("population")
    if population is not None and "evolution" in population:
        return {"view": "neat"}
    if population is not None:  # the page runs it as a network on rows
        kind = "rows"
        inputs = {"input": {"shape": [population["inputs"]], "dtype": "float32"}}
        outputs = {"output": {"shape": [population["outputs"]], "dtype": "float32"}}
    hints: dict[str, Any] = {"view": FOR_KIND.get(kind)}
    if kind == "learner":
        return _learner_hints(network, task, image)
    if kind in ("rows", "sequences", "stream", "ticks"):
        hints["fields"] = {name: _fields(port, task) for name, port in inputs.items()}
        if task is not None and task.outputs and len(outputs) == 1:
            hints["outputs"] = {next(iter(outputs)): {"names": list(task.outputs)}}
    if kind == "rows" and len(inputs) == 1:
        port, output = next(iter(inputs.values())), next(iter(outputs.values()))
        picture = _image(port, output, image)
        if picture is not None:
            hints |= {"view": "image", "image": picture}
            del hints["fields"]
        elif math.prod(port["shape"]) == 2 and port["dtype"] == "float32":
            hints["view"] = "field"
    elif image is not None:
        raise SpecError("only a network of independent rows with one input reads an image", hint="leave the image out")
    if population is not None and population["genomes"] > 1:
        hints["view"] = "genomes"
    elif task is not None and task.environment == CARTPOLE and _plays_cartpole(inputs, outputs):
        hints["view"] = "cartpole"
    if task is not None and task.problem:
        hints["evolved"] = task.problem
    if task is not None and task.samples:
        hints["samples"] = [{"x": list(x), "y": y} for x, y in task.samples]
    return hints


def genome_drawing(genome: Any, task: EvolvedTask | None = None) -> dict[str, Any]:
    """Return nodes with places in 0 … 1 and enabled connections of a genome, for the page's drawing."""
    from volumetric.evolution.node_columns import node_columns

    columns = node_columns(genome)
    wide, out = genome.interface.inputs, genome.interface.outputs
    last = max(*columns.values(), 1)
    members: dict[int, list[int]] = {}
    for node, column in sorted(columns.items()):
        members.setdefault(column, []).append(node)
    names: dict[int, str] = {}
    if task is not None:
        outputs = task.outputs or (("push",) if task.environment == CARTPOLE and out == 1 else ())
        names = dict(enumerate(task.inputs)) | {wide + i: name for i, name in enumerate(outputs)}

    def place(node: int, column: int) -> dict[str, Any]:
        beside = members[column]
        role = f"in {node}" if node < wide else f"out {node - wide}" if node < wide + out else f"node {node}"
        return {
            "x": round(column / last, 4),
            "y": round((beside.index(node) + 1) / (len(beside) + 1), 4),
            "name": names.get(node, role),
        }

    index = {node: i for i, node in enumerate(columns)}
    on = genome.connections[genome.connections["enabled"]]
    edges = [
        [index[int(one["source"])], index[int(one["target"])], round(float(one["weight"]), 4)]
        for one in on
        if int(one["source"]) in index and int(one["target"]) in index
    ]
    return {"nodes": [place(node, column) for node, column in columns.items()], "edges": edges}


def _learner_hints(
    network: Mapping[str, Any], task: EvolvedTask | None, image: tuple[int, int] | None
) -> dict[str, Any]:
    """Return the hints of a network that learns: it is taught CartPole, images of classes, or numbers."""
    inputs, outputs, targets = network["inputs"], network["outputs"], network["learner"]["targets"]
    if task is not None and task.environment == CARTPOLE and _plays_cartpole(inputs, outputs):
        [(output, port)] = outputs.items()
        names = {output: {"names": list(ACTIONS)}} if math.prod(port["shape"]) == len(ACTIONS) else {}
        return {"view": "learn_cartpole", "outputs": names}
    classes = [target for target in targets.values() if "classes" in target]
    if len(inputs) == len(outputs) == len(classes) == 1:
        [port], [(name, output)] = inputs.values(), outputs.items()
        picture = _image(port, output, image)
        if picture is not None:
            return {"view": "learn_digits", "image": picture, "outputs": {name: {"classes": True, "scores": "logits"}}}
    if any(math.prod(target["shape"]) > 1 for target in classes):
        return {"view": None}
    fields = {name: _fields(port, task) for name, port in inputs.items()}
    hints: dict[str, Any] = {"view": "learn_numbers", "fields": fields}
    if task is not None and task.outputs and len(outputs) == 1:
        hints["outputs"] = {next(iter(outputs)): {"names": list(task.outputs)}}
    if task is not None and task.samples:
        hints["samples"] = [{"x": list(x), "y": y} for x, y in task.samples]
    return hints


def _plays_cartpole(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:
    if len(inputs) != 1 or len(outputs) != 1:
        return False
    widths = [math.prod(next(iter(ports.values()))["shape"]) for ports in (inputs, outputs)]
    return widths[0] == 4 and widths[1] in (1, len(ACTIONS))


def _image(port: Mapping[str, Any], output: Mapping[str, Any], size: tuple[int, int] | None) -> dict[str, Any] | None:
    """Return what the page must know to write an image to an input, or None if it is none."""
    shape: Sequence[int] = port["shape"]
    total = math.prod(shape)
    channels, first = 1, "channels"
    if size is not None:
        channels = total // math.prod(size) if math.prod(size) else 0
        if channels not in (1, 3) or channels * math.prod(size) != total:
            raise SpecError(
                f"an image of {size[0]} × {size[1]} pixels has {math.prod(size)} or {3 * math.prod(size)} numbers; "
                f"the input has {total}",
                hint="give the height and width of the images that the network was trained on",
            )
        first = "pixels" if len(shape) == 3 and shape[-1] == channels != shape[0] else "channels"
    elif len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= 4:
        channels, size = shape[0], (shape[1], shape[2])
    elif len(shape) == 3 and shape[2] in (1, 3) and min(shape[:2]) >= 4:
        channels, size, first = shape[2], (shape[0], shape[1]), "pixels"
    elif len(shape) == 2 and min(shape) >= 4:
        size = (shape[0], shape[1])
    elif total in _FLAT_IMAGES and (output.get("names") or math.prod(output["shape"]) == 10):
        size = _FLAT_IMAGES[total]
    if size is None or port["dtype"] != "float32":
        return None
    return {"height": size[0], "width": size[1], "channels": channels, "low": 0.0, "high": 1.0, "first": first}


def _fields(port: Mapping[str, Any], task: EvolvedTask | None) -> list[dict[str, Any]]:
    """Return name and range of each number of an input: by samples, by its standardisation, else −1 … 1."""
    count = math.prod(port["shape"])
    names = list(port.get("names") or (task.inputs if task is not None else ()))
    fields: list[dict[str, Any]] = [{} for _ in range(count)]
    if len(names) == count:
        for field, name in zip(fields, names, strict=True):
            field["name"] = name
    scaling = port.get("standardise")
    if task is not None and task.samples and len(task.samples[0][0]) == count:
        for i, field in enumerate(fields):
            low, high = min(x[i] for x, _ in task.samples), max(x[i] for x, _ in task.samples)
            edge = _MARGIN * ((high - low) or 1.0)
            field |= {"low": round(low - edge, 6), "high": round(high + edge, 6)}
    elif scaling:
        for field, mean, deviation in zip(fields, scaling["mean"], scaling["deviation"], strict=True):
            span = _DEVIATIONS * deviation
            field |= {"low": mean - span, "high": mean + span, "value": mean}
    return fields if any(fields) else []
