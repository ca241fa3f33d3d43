"""Write docs/layers: a page for every layer kind, made from its class, and the index.

python scripts/layer_pages.py            write the files
python scripts/layer_pages.py --check    exit with 1 if one of them is not current

A page is the class's docstring (what the layer computes, its formula, notes and source), its fields with what the
section `Attributes` says of them, and examples from the tests' table. Where a summary ends with "as in" a base, the
page has the base's text too.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the examples of every layer kind, which the tests keep

from scripts.pages import write_or_check  # noqa: E402 (the line above must come first)
from tests.examples import EXAMPLES  # noqa: E402
from volumetric.base._typing import ROWS, Shape  # noqa: E402
from volumetric.layers import LAYERS, LayerSpec, ParamSpec  # noqa: E402
from volumetric.network.network_json import spec_to_dict  # noqa: E402

HOME = ROOT / "docs" / "layers"
MAX_EXAMPLES = 3
NAMES = {cls.__name__: kind for kind, cls in LAYERS.items()}
AS_IN = re.compile(r"; [^;]+ as in `(\w+)`\.$")


def main() -> int:
    """Write or check every page."""
    pages = {HOME / f"{kind}.md": _page(kind) for kind in sorted(LAYERS)}
    return write_or_check(__doc__, pages | {HOME / "README.md": _index()})


def _page(kind: str) -> str:
    cls = LAYERS[kind]
    source = Path(inspect.getfile(cls)).relative_to(ROOT)
    lines = [f"# {cls.__name__}", "", f"<!-- written by scripts/layer_pages.py from {source}; do not edit -->", ""]
    for paragraph in _text_of(cls):
        lines += [_filled(_markdown(paragraph, kind)), ""]
    return "\n".join([*lines, *_fields(cls), *_examples(kind)]).rstrip("\n") + "\n"


def _text_of(cls: type[LayerSpec]) -> list[str]:
    """Paragraphs of a docstring before its sections: the summary, the formula, what a base says, and the rest."""
    summary, *rest = _paragraphs(cls)
    if base := AS_IN.search(summary):
        _, *shared = _paragraphs(next(b for b in cls.__mro__ if b.__name__ == base[1]))
        formula = sum(1 for p in rest[:1] if _is_block(p))
        rest = [*rest[:formula], *shared, *rest[formula:]]
    return [_summary(cls), *rest]


def _paragraphs(cls: type) -> list[str]:
    text = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes\n---")[0]
    return [p for p in text.split("\n\n") if p != "::"]


def _summary(cls: type[LayerSpec]) -> str:
    return AS_IN.sub(".", _paragraphs(cls)[0])


def _is_block(paragraph: str) -> bool:
    return all(line.startswith("    ") for line in paragraph.split("\n"))


def _markdown(text: str, kind: str) -> str:
    """Return a literal block or a paragraph as Markdown; other layers, documents and preprints become links."""
    if _is_block(text):
        return f"```\n{textwrap.dedent(text)}\n```"
    text = re.sub(r"(?<!`)`(\w+)`(?!`)", lambda name: _layer(name[1], kind), " ".join(text.split())).replace("``", "`")
    text = re.sub(r"docs/([\w/]+)(\.md(#[\w-]+)?)", r"[\1](../\1\2)", text)
    return re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def _filled(text: str) -> str:
    """Break a paragraph into lines of 120 characters, but not within code or a link."""
    if text.startswith("```"):
        return text
    whole = re.sub(r"`[^`]+`|\[[^]]+\]\([^)]+\)", lambda found: found[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def _layer(name: str, page: str) -> str:
    kind = NAMES.get(name, page)
    return f"`{name}`" if kind == page else f"[{name}]({kind}.md)"


def _fields(cls: type[LayerSpec]) -> list[str]:
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]  (specs are dataclasses)
    if not fields:
        return [f"Kind `{cls.kind}`; it has no fields.", ""]
    meanings = _meanings(cls)
    lines = [f"Kind `{cls.kind}`.", "", "| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for field in fields:
        default = "required" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        kind = str(field.type).replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{kind}` | {default} | {_cell(meanings[field.name], cls.kind)} |")
    return [*lines, ""]


def _meanings(cls: type[LayerSpec]) -> dict[str, str]:
    """Name of a field → its meaning in the class's docstring or that of a base."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, attributes = inspect.cleandoc(base.__doc__ or "").partition("Attributes\n----------\n")
        for entry in re.split(r"\n(?=\w[\w, ]* : )", attributes):
            names, _, meaning = entry.partition(" : ")
            meanings |= {name.strip(): meaning for name in names.split(",") if meaning}
    return meanings


def _cell(text: str, kind: str) -> str:
    """Text in a cell of a table."""
    return _markdown(text, kind).replace("|", "\\|")


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
        "After this page you know the kinds of layers, and how to read their pages. Each page has the formula, the",
        "fields, and examples with shapes, parameters and states. [What runs where](../support.md) lists the",
        "devices for each kind.",
        "",
        "- N is the number of rows or samples.",
        "- `fan_in` initialises a parameter uniformly in ±1/√in, and `normal` with deviation 0.02. Parameters marked",
        "  float32 are never packed.",
        "- A buffer is not a parameter: the layer itself updates it in training.",
        "- States are kept from call to call for each sequence. States of rows grow with it; all others have a fixed",
        "  size.",
        "",
        "| kind | class | summary |",
        "| --- | --- | --- |",
    ]
    for kind, cls in sorted(LAYERS.items()):
        lines.append(f"| [{kind}]({kind}.md) | `{cls.__name__}` | {_cell(_summary(cls), kind)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
