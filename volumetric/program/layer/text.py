"""Program ↔ JSON: every field that is not its default, names in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from volumetric.base.errors import SpecError
from volumetric.base.hints import shown
from volumetric.base.tables import record
from volumetric.program.layer.declared import MOST_EDGES, VERSION, Program, refuse_edges

FORMAT = "volumetric.program"
MOST_BYTES = 64 * 2**20
SHORT = 120
"""Characters of a line, at most, where it can be cut."""
_HEAD = ("format", "version")


def program_to_json(program: Program) -> str:
    """Return a program as text. Equal programs have equal texts."""
    return _lined(program_to_dict(program), 0) + "\n"


def program_to_dict(program: Program) -> dict[str, Any]:
    """Return what `program_to_json` writes."""
    return {"format": FORMAT, "version": VERSION, **written(program)}


def written(value: Any) -> Any:
    """Return a value as JSON has it, without fields that are their defaults."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        out: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
        for field in _fields(type(value)).values():
            of = getattr(value, field.name)
            default = {} if field.default_factory is not msgspec.NODEFAULT else field.default
            if of != default:
                out[field.name] = written(of)
        return out
    if isinstance(value, Mapping):
        return {name: written(one) for name, one in value.items()}
    return [written(one) for one in value] if isinstance(value, tuple | list) else value


def program_from_json(text: str | bytes) -> Program:
    """Return the program that a text describes.

    Raises
    ------
    SpecError : it is no JSON, or no program; the message names the place
    """
    data = read_json(text, "program")
    if not isinstance(data, dict):
        raise SpecError(f"program: expected an object, got {_kind(data)}")
    if data.get("format") != FORMAT:
        canvas = "schema_version" in data or "program_version" in data
        raise SpecError(
            f"program: format is {shown(data.get('format'))}, expected {FORMAT!r}",
            hint="`volumetric program import` reads those of canvas-engineering" if canvas else None,
        )
    version = data.get("version")
    if isinstance(version, bool) or version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        read = f"versions up to {VERSION} are read"
        hint = f"a newer volumetric wrote it; {read} here" if newer else read
        raise SpecError(f"program: version {shown(version)} is not known", hint=hint)
    edges = data.get("edges")
    if isinstance(edges, list) and len(edges) > MOST_EDGES:
        refuse_edges(len(edges), _width(data))
    return record(Program, {name: value for name, value in data.items() if name not in _HEAD}, "$", known=_HEAD)


def read_json(text: str | bytes, what: str) -> Any:
    """Return the value of a JSON text, `what` being its name in errors; an object with a key twice is refused."""
    if len(text) > MOST_BYTES:
        edges = text.count('"reads"' if isinstance(text, str) else b'"reads"')  # pyright: ignore[reportArgumentType]  (of its kind)
        if edges > MOST_EDGES:
            refuse_edges(edges, 64)
        raise SpecError(f"{what}: a text of {len(text) / 2**20:,.0f} MiB, at most {MOST_BYTES >> 20} MiB are read")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except SpecError as error:
        raise SpecError(f"{what}: {error}") from None
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise SpecError(f"{what}: not valid JSON ({why})", hint="it is cut short, or another kind of file") from None


@cache
def _fields(cls: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen_keys: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen_keys or seen_keys.add(key))
        raise SpecError(f"key {shown(twice)} is there twice")
    return mapping


def _refuse(number: str) -> Any:
    raise SpecError(f"{number} is no number of JSON")


def _width(data: Mapping[str, Any]) -> int:
    """The width of a canvas that is not read yet, for an error."""
    canvas = data.get("canvas")
    width = canvas.get("width") if isinstance(canvas, dict) else None
    return width if isinstance(width, int) and 0 < width < 2**16 else 64


def _lined(value: Any, depth: int) -> str:
    """JSON text in which what is short stands on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if depth and len(flat) + depth <= SHORT:
        return flat
    if isinstance(value, dict) and value:
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {_lined(one, depth + 1)}" for name, one in value.items()]
    elif isinstance(value, list) and value:
        parts = [_lined(one, depth + 1) for one in value]
    else:
        return flat
    pad = "\n" + " " * (depth + 1)
    return (
        ("{" if isinstance(value, dict) else "[")
        + pad
        + ("," + pad).join(parts)
        + pad[:-1]
        + ("}" if isinstance(value, dict) else "]")
    )


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", bool: "a truth", type(None): "nothing"}.get(
        type(value), "a number"
    )
