"""Programs to and from JSON: all fields that differ from their defaults, names in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from volumetric.base.config_tables import record
from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.program.layer.program_declaration import MOST_EDGES, VERSION, Program, refuse_edges

FORMAT = "volumetric.program"
MOST_BYTES = 64 * 2**20
SHORT = 120
"""Maximum characters of a line that can be split."""
_HEAD = ("format", "version")


def program_to_json(program: Program) -> str:
    """Return a program as text. Equal programs have equal texts."""
    return _lined_json(program_to_dict(program), 0) + "\n"


def program_to_dict(program: Program) -> dict[str, Any]:
    """Return the data of `program_to_json`."""
    return {"format": FORMAT, "version": VERSION, **json_value(program)}


def json_value(value: Any) -> Any:
    """Return a value as JSON data, without fields that equal their defaults."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        out: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
        for field in _fields(type(value)).values():
            of = getattr(value, field.name)
            default = {} if field.default_factory is not msgspec.NODEFAULT else field.default
            if of != default:
                out[field.name] = json_value(of)
        return out
    if isinstance(value, Mapping):
        return {name: json_value(one) for name, one in value.items()}
    return [json_value(one) for one in value] if isinstance(value, tuple | list) else value


def program_from_json(text: str | bytes) -> Program:
    """Parse a program.

    Raises
    ------
    SpecError : the text is not JSON, or not a program; the message names the place
    """
    data = read_json(text, "program")
    if not isinstance(data, dict):
        raise SpecError(f"program: expected an object, got {_kind(data)}")
    if data.get("format") != FORMAT:
        canvas = "schema_version" in data or "program_version" in data
        raise SpecError(
            f"program: format is {format_value(data.get('format'))}, expected {FORMAT!r}",
            hint="`volumetric program import` reads those of canvas-engineering" if canvas else None,
        )
    version = data.get("version")
    if isinstance(version, bool) or version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        read = f"versions up to {VERSION} are supported"
        hint = f"a newer volumetric wrote it; {read} here" if newer else read
        raise SpecError(f"program: version {format_value(version)} is unknown", hint=hint)
    edges = data.get("edges")
    if isinstance(edges, list) and len(edges) > MOST_EDGES:
        refuse_edges(len(edges), _width(data))
    return record(Program, {name: value for name, value in data.items() if name not in _HEAD}, "$", known=_HEAD)


def read_json(text: str | bytes, what: str) -> Any:
    """Parse a JSON text, with `what` as its name in errors; raise `SpecError` for duplicate keys."""
    if len(text) > MOST_BYTES:
        edges = text.count('"reads"' if isinstance(text, str) else b'"reads"')  # pyright: ignore[reportArgumentType]  (of its kind)
        if edges > MOST_EDGES:
            refuse_edges(edges, 64)
        raise SpecError(f"{what}: the text has {len(text) / 2**20:,.0f} MiB, the limit is {MOST_BYTES >> 20} MiB")
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse)
    except SpecError as error:
        raise SpecError(f"{what}: {error}") from None
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise SpecError(
            f"{what}: not valid JSON ({why})",
            hint="it is truncated, or another kind of file: save_program writes x.program.json",
        ) from None


@cache
def _fields(cls: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen_keys: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen_keys or seen_keys.add(key))
        raise SpecError(f"duplicate key {format_value(twice)}")
    return mapping


def _refuse(number: str) -> Any:
    raise SpecError(f"{number} is not a JSON number")


def _width(data: Mapping[str, Any]) -> int:
    """Return the width of a canvas before it is parsed, for an error."""
    canvas = data.get("canvas")
    width = canvas.get("width") if isinstance(canvas, dict) else None
    return width if isinstance(width, int) and 0 < width < 2**16 else 64


def _lined_json(value: Any, depth: int) -> str:
    """Return JSON text with short values on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if depth and len(flat) + depth <= SHORT:
        return flat
    if isinstance(value, dict) and value:
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}: {_lined_json(one, depth + 1)}" for name, one in value.items()
        ]
    elif isinstance(value, list) and value:
        parts = [_lined_json(one, depth + 1) for one in value]
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
