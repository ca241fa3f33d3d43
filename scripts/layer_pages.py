"""Write the generated parts of docs/layers: fields, shapes and parameters of every layer kind, and the index.

python scripts/layer_pages.py            write the files
python scripts/layer_pages.py --check    exit with 1 if one of them is not current

What stands outside of the marks is written by hand: what the layer computes, and why.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the examples of every layer kind, which the tests keep

from scripts.pages import write_or_check  # noqa: E402 (the line above must come first)
from tests.examples import EXAMPLES  # noqa: E402
from volumetric._typing import ROWS, Shape  # noqa: E402
from volumetric.layers import LAYERS, LayerSpec, ParamSpec  # noqa: E402
from volumetric.network_json import spec_to_dict  # noqa: E402

HOME = ROOT / "docs" / "layers"
BEGIN, END = "<!-- written by scripts/layer_pages.py: begin -->\n", "<!-- end -->\n"
MAX_EXAMPLES = 3
PLAIN = {
    "activation": "function of every element at the end",
    "affine": "whether each channel has a gain and a bias",
    "axis": "axis of the logits, from the front or (below 0) from the end; never the first one",
    "bias": "whether there is one",
    "branches": "layers on the same input",
    "cap": "bound of the output",
    "max": "upper bound, None: there is none",
    "min": "lower bound, None: there is none",
    "reverse": "whether the steps run from the last to the first",
    "components": "number of distributions",
    "cols": "logits in a row of the grid",
    "cutoffs": "first classes of the clusters",
    "embedding_dim": "features of a row",
    "eps": "keeps the root away from 0",
    "hidden_features": "width between the two products",
    "hidden_size": "features of the state",
    "in_features": "features of a row of input",
    "input_size": "features of a step of input",
    "layers": "in the order in which they are computed",
    "levels": "branching of each level of the tree",
    "mask": "which places take part",
    "n_classes": "number of probabilities",
    "nonlinearity": "tanh or relu",
    "num_embeddings": "rows of the table",
    "num_features": "features of a row",
    "offset": "added to the position",
    "out_features": "features of a row of output",
    "qk_norm_eps": "keeps the root away from 0",
    "qk_norm_unit_offset": "the gain of these norms is 1 + w",
    "rows": "choices of the grid",
    "scale": "factor on the output",
    "seed": "of the noise",
    "shape": "of a row; one size may be -1",
    "unit_offset": "the gain is 1 + w",
    "alpha": "1: softmax, 2: sparsemax",
}
"""Meanings of fields whose names say enough for a docstring."""


def main() -> int:
    """Write or check every page."""
    pages = {HOME / f"{kind}.md": _page(kind) for kind in sorted(LAYERS)}
    return write_or_check(__doc__, pages | {HOME / "README.md": _index()})


def _page(kind: str) -> str:
    path = HOME / f"{kind}.md"
    text = path.read_text(encoding="utf-8") if path.exists() else f"# {LAYERS[kind].__name__}\n\n{BEGIN}{END}"
    before, rest = text.split(BEGIN)
    return before + BEGIN + _facts(LAYERS[kind]) + END + rest.split(END)[1]


def _facts(cls: type[LayerSpec]) -> str:
    return "\n".join([*_fields(cls), *_examples(cls.kind)]) + "\n"


def _fields(cls: type[LayerSpec]) -> list[str]:
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]  (specs are dataclasses)
    if not fields:
        return [f"Kind `{cls.kind}`; it has no fields.", ""]
    described = _described(cls)
    lines = [f"Kind `{cls.kind}`.", "", "| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for field in fields:
        default = "required" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        kind = str(field.type).replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{kind}` | {default} | {described.get(field.name) or PLAIN[field.name]} |")
    return [*lines, ""]


def _described(cls: type[LayerSpec]) -> dict[str, str]:
    """Name of a field → its meaning in the class's docstring or that of a base."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(base.__doc__ or "")
        _, _, attributes = text.partition("Attributes\n----------\n")
        for entry in re.split(r"\n(?=\w[\w, ]* : )", attributes):
            names, _, meaning = entry.partition(" : ")
            joined = " ".join(meaning.split()).replace("``", "`").replace("|", "\\|")
            found |= {name.strip(): joined for name in names.split(",") if meaning}
    return found


def _examples(kind: str) -> list[str]:
    shown = list(EXAMPLES[kind].cases.values())
    rows: list[tuple[str, ...]] = []
    for spec, shape in shown[:MAX_EXAMPLES]:
        given = (ROWS, *shape[1:])
        params = "<br>".join(f"`{p.name}` {_shape(p.shape)}, {p.init}{_mark(p)}" for p in spec.tensors())
        states = "<br>".join(
            f"`{s.name}` {'rows of ' * (s.kind == 'rows')}{_shape(s.shape)}" for s in spec.states(given)
        )
        rows.append((_call(spec), _shape(given), _shape(spec.output_shape(given)), params or "none", states or "none"))
    head = ("example", "input", "output", "parameters", "states")
    columns = len(head) - all(row[-1] == "none" for row in rows)
    return [*(f"| {' | '.join(row[:columns])} |" for row in (head, ("---",) * len(head), *rows)), ""]


def _mark(param: ParamSpec) -> str:
    return ", buffer" if param.buffer else "" if param.packable else ", float32"


def _call(spec: LayerSpec) -> str:
    return f"`{_text(spec_to_dict(spec))}`".replace("|", "\\|")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        head = value.get("kind", "")
        return f"{head}({', '.join(f'{k}={_text(v)}' for k, v in value.items() if k != 'kind')})"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return repr(value)


def _shape(shape: Shape) -> str:
    return "[" + ", ".join("N" if axis == ROWS else str(axis) for axis in shape) + "]"


def _index() -> str:
    lines = [
        "# Layers",
        "",
        "<!-- written by scripts/layer_pages.py; do not edit -->",
        "",
        "One page for each kind: formula, fields, shapes, parameters, states. [What runs where](../support.md) tells",
        "which device computes it. N counts rows or samples. Parameters are initialised as said: `fan_in` is uniform",
        "in ±1/√in, `normal` has deviation 0.02; those marked float32 are never packed. A buffer is no",
        "parameter: the layer itself changes it while it trains. States are what a sequence leaves behind from call to",
        "call: rows grow with it, all else is one value.",
        "",
        "| kind | class | summary |",
        "| --- | --- | --- |",
    ]
    for kind, cls in sorted(LAYERS.items()):
        summary = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
        escaped = summary.replace("|", "\\|")
        lines.append(f"| [{kind}]({kind}.md) | `{cls.__name__}` | {escaped} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
