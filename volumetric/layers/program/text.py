"""Program ↔ JSON: every field that is not its default, names in their order."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from volumetric.errors import SpecError
from volumetric.hints import shown, suggestion
from volumetric.layers.program.declared import MOST_EDGES, VERSION, Program, refuse_edges
from volumetric.tables import convert, expect_keys

FORMAT = "volumetric.program"
MOST_BYTES = 64 * 2**20
SHORT = 120
"""Characters of a line, at most, where it can be cut."""
_HEAD = ("format", "version")

T = TypeVar("T")


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
    return built({name: value for name, value in data.items() if name not in _HEAD}, Program, "$", known=_HEAD)


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


def built(data: Any, cls: type[T], where: str, known: Iterable[str] = ()) -> T:
    """Return the value of a class that JSON describes; unknown keys and wrong types are errors that name the place.

    Parameters
    ----------
    known : keys that may stand in the text besides the fields, for suggestions
    """
    if not isinstance(data, dict):
        raise SpecError(f"{where}: expected an object, got {_kind(data)}")
    config = cls.__struct_config__  # pyright: ignore[reportAttributeAccessIssue]  (a struct)
    fields = _fields(cls)
    tag = (config.tag_field,) if config.tag_field else ()
    expect_keys(data, (*tag, *fields, *known), where)
    missing = [name for name, field in fields.items() if field.required and name not in data]
    if missing:
        raise SpecError(f"{where}: {missing[0]!r} is missing")
    hints = _hints(cls)
    given = {name: _of(value, hints[name], f"{where}.{name}") for name, value in data.items() if name not in tag}
    try:
        return cls(**given)
    except SpecError as error:
        raise SpecError(f"{where}: {error}", hint=error.hint) from None


def _of(value: Any, to: Any, where: str) -> Any:
    """A JSON value in a type."""
    options = get_args(to) if get_origin(to) in (Union, types.UnionType) else (to,)
    if value is None and type(None) in options:
        return None
    structs = [one for one in options if isinstance(one, type) and issubclass(one, Struct)]
    if structs:
        return built(value, _tagged(value, structs, where), where)
    inside = next((one for one in options if get_origin(one) in (tuple, Mapping)), None)
    if inside is not None and isinstance(value, dict) and get_origin(inside) is Mapping:
        of = get_args(inside)[1]
        return {name: _of(one, of, f"{where}.{name}") for name, one in value.items()}
    if inside is not None and isinstance(value, list) and get_origin(inside) is tuple:
        args = get_args(inside)
        if args[-1] is Ellipsis:
            return tuple(_of(one, args[0], f"{where}[{i}]") for i, one in enumerate(value))
    return convert(value, to, where)


def _tagged(value: Any, structs: list[type[Struct]], where: str) -> type[Struct]:
    """The struct that an object with a tag is of."""
    field = structs[0].__struct_config__.tag_field
    if field is None:
        return structs[0]
    if not isinstance(value, dict):
        raise SpecError(f"{where}: expected an object, got {_kind(value)}")
    by_tag = {str(one.__struct_config__.tag): one for one in structs}
    kind = value.get(field)
    if not isinstance(kind, str) or kind not in by_tag:
        raise SpecError(f"{where}: unknown {field} {shown(kind)}", hint=suggestion(kind, by_tag))
    return by_tag[kind]


@cache
def _fields(cls: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise SpecError(f"key {shown(twice)} is there twice")
    return found


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
