"""Convert the tables of a configuration file to values: keys have types and defaults; unknown keys are errors."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from volumetric.base.errors import SpecError, VolumetricError
from volumetric.base.hints import format_value, path_hint, suggestion
from volumetric.base.import_by_name import import_plugins
from volumetric.base.plugins import load_plugins

T = TypeVar("T")


_NAMED_BY: Mapping[str, str] = {
    ".json": '[network] with file = "%s"',
    ".npz": '[data] with npz = "%s"',
    ".csv": '[data] with csv = "%s"',
    ".parquet": '[data] with parquet = "%s"',
    ".npy": '[data] with npy = { inputs = "%s", targets = "y.npy" }',
    ".txt": '[data] with text = "%s"',
    ".gguf": '[network] with model = "%s"',
    ".safetensors": '[network] with model = "%s"',
}
_TORCH = (".pt", ".pth", ".bin", ".ckpt", ".pkl")


def not_toml(path: Path, error: Exception, text: str = "") -> SpecError:
    """Return the error for a file of a text that is not valid TOML; `error` is the parser's."""
    named = _NAMED_BY.get(path.suffix)
    hint = f"a TOML file names it: {named % path.name}" if named else _slip_in_toml(text, error)
    if path.suffix in _TORCH:
        hint = "samples: numpy.savez(…, inputs=x.numpy(), targets=y.numpy()); "
        hint += f'weights: [network] with model = "{path.name}"'
    what = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
    return SpecError(f"{path}: not valid TOML: {what}", hint=hint)


_LINE = re.compile(r"at line (\d+)")
_SLIPS: Final = (
    (r'"[^"\n]*\\(?![btnfre"\\uUx])|"[A-Za-z]:\\', "a backslash begins an escape in double quotes: write '…', or /"),
    (r"[=\[{,]\s*(True|False)\b", "true and false are written in small letters"),
    (r"[=\[{,]\s*(None|null|nil)\b", "TOML has no empty value: leave the key out"),
    (r"=\s*\{\s*$", "an inline table { … } is written on one line, or as a section [name]"),
    (r"[{,]\s*\"?\w+\"?\s*:", "tables are written { key = value }"),
    (r"^\s*[\w.]+\s*:", "write = in place of the colon: key = value"),
    (r"=\s*[A-Za-z_][\w.-]*\s*([,}\]#]|$)", 'write text in quotes: key = "text"'),
    (r"=\s*=", "write = once: key = value"),
    (r"=\s*$", "write a value after the =: key = value"),
)
"""Pattern of a line with a slip → what to write."""


def _slip_in_toml(text: str, error: Exception) -> str:
    """Return what to write in the line of a text at which a parser of TOML stopped."""
    if "Cannot declare" in str(error):
        return "a section is written once: put its keys together"
    if "Cannot overwrite" in str(error):
        return "a key is set once: remove one of the two lines"
    place, lines = _LINE.search(str(error)), text.splitlines()
    line = lines[int(place[1]) - 1] if place and int(place[1]) <= len(lines) else ""
    slip = next((hint for pattern, hint in _SLIPS if re.search(pattern, line)), None)
    return slip or 'write sections as [name], and lines as key = value, where text is in quotes: "text"'


MAX_BYTES: Final = 1_000_000


def read_toml(path: Path, changes: Mapping[str, Any] | None, make: Callable[[dict[str, Any], str, Path], T]) -> T:
    """Return `make` applied to the tables of a file, its name without suffix, and its directory.

    ``plugins = ["my_parts"]`` in the file imports modules next to it, in the current directory, or installed ones.

    Parameters
    ----------
    changes : entries by dotted name, such as ``"train.epochs"``, that override those of the file

    Raises
    ------
    SpecError : the file cannot be read, is not TOML, or `make` raises; the message names the file
    """
    text = b""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise SpecError(f"{path} has more than {MAX_BYTES} bytes", hint="pass a short TOML file")
        table = tomllib.loads(text.decode())
    except OSError as error:
        raise SpecError(
            f"cannot read {path}: {error.strerror or error}", hint=f"pass the path of a TOML file; {path_hint(path)}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_toml(path, error, text.decode(errors="replace")) from None
    for name, value in (changes or {}).items():
        *parts, last = name.split(".")
        inner = table
        for part in parts:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SpecError(f"{name}: {part} is not a table")
        inner[last] = value
    try:
        import_plugins(checked_value(table.pop("plugins", []), list[str], "plugins"), path.parent)
        return make(table, path.stem, path.parent)
    except VolumetricError as error:
        raise SpecError(f"{path}: {error}", hint=error.hint) from None


def expect_keys(
    table: object,
    allowed: Iterable[str],
    where: str,
    form: str = "a table",
    *,
    elsewhere: Callable[[str], str | None] = lambda _: None,
) -> dict[str, Any]:
    """Return `table`; raise `SpecError` if it is not a table, or has a key that is not `allowed`.

    Parameters
    ----------
    form : name of a table in the file's language
    elsewhere : returns where a key belongs that is not allowed here; None: nowhere
    """
    names, place = list(allowed), f"{where}: " if where else ""
    if not isinstance(table, dict):
        doubled = isinstance(table, list) and where.startswith("[")
        raise SpecError(
            f"{place}expected {form}, got {format_value(table)}",
            hint=f"write {where} in single brackets" if doubled else f"it has {', '.join(names[:6])}, …",
        )
    for key in table:
        if key not in names:
            hint = elsewhere(key) if isinstance(key, str) else None
            raise SpecError(f"{place}unknown key {format_value(key)}", hint=hint or suggestion(key, names))
    return table


def checked_value(value: object, to: Any, where: str) -> Any:
    """Return `value` as type `to`; raise `SpecError` for another type. Whole numbers are accepted as floats."""
    if get_origin(to) is Literal and value not in get_args(to):
        names = list(map(str, get_args(to)))
        listed = "one of " + ", ".join(names)
        near = suggestion(value, names, "")
        raise SpecError(f"{where}: unknown name {format_value(value)}", hint=f"{near} {listed}" if near else listed)
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, TypeError) as error:
        raise SpecError(f"{where}: {str(error).partition(' - at')[0]}", hint=_type_text(to, value)) from None
    except UnicodeEncodeError:
        raise SpecError(f"{where}: half of a surrogate pair, which is no text") from None


_FORMS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text in quotes",
    tuple: "a list",
    list: "a list",
    dict: "a table",
}


def _type_text(to: Any, value: object) -> str | None:
    """Return how a value of a type is spelled in a file."""
    either = get_args(to) if get_origin(to) in (UnionType, Union) else (to,)
    kinds = [get_origin(of) or of for of in either]
    forms = [_FORMS[kind] for kind in kinds if kind in _FORMS]
    if not forms:
        return None
    return f"write {' or '.join(dict.fromkeys(forms))}{_example(value, kinds)}"


def _example(value: object, kinds: list[Any]) -> str:
    """Return how a value may have been meant, after the form that is expected."""
    if isinstance(value, str) and tuple in kinds:
        return f': ["{value}"]' if str not in kinds else ""
    if isinstance(value, str) and str not in kinds:
        try:
            number = float(value)
        except ValueError:
            return ", without quotes"
        fits = float in kinds or number.is_integer()
        return f", without quotes: {value.strip()}" if fits else ", without quotes"
    if isinstance(value, float) and value.is_integer() and int in kinds:
        return f": {int(value)}"
    return ""


def at_least_one(name: str, value: int, usual: str) -> None:
    """Raise `SpecError` for a number below 1; `usual` is its default."""
    if value < 1:
        raise SpecError(f"{name} must be at least 1, got {value}", hint=f"leave it out for the default, {usual}")


def convert(value: object, to: Any, where: str) -> Any:
    """Return a JSON value as type `to`; raise `SpecError`, the message beginning with `where` and the place."""
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, TypeError) as error:
        raise SpecError(f"{where}: {error}") from None
    except UnicodeEncodeError:
        raise SpecError(f"{where}: half of a surrogate pair, which is no text") from None


@lru_cache(maxsize=256)
def _plain_types(cls: type) -> Mapping[str, Any]:
    """Name → type of the fields of a dataclass that hold numbers, truth values, text, or tuples of such."""
    return {f.name: of for f in dataclasses.fields(cls) if f.init and _is_plain(of := get_type_hints(cls)[f.name])}


def _is_plain(of: Any) -> bool:
    if of in (int, float, bool, str, type(None), ...):
        return True
    return get_origin(of) in (tuple, UnionType, Union) and all(map(_is_plain, get_args(of)))


def check_fields(of: Any, where: str = "", *, without: Iterable[str] = ()) -> None:
    """Check the plain fields of a frozen dataclass: whole numbers are accepted for floats, lists for tuples.

    Raises
    ------
    SpecError : a value is of another type; the message names its field after `where`
    """
    for name, to in _plain_types(type(of)).items():
        value = getattr(of, name)
        if type(value) is to or value is None or name in without:
            if value is None and type(None) not in get_args(to):
                type_name = getattr(to, "__name__", str(to))
                raise SpecError(
                    f"{_path_of(where, name)}: expected {type_name}, got None", hint="leave it out for the default"
                )
            continue
        plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value  # NumPy's
        object.__setattr__(of, name, checked_value(plain, to, _path_of(where, name)))


def _path_of(where: str, name: str) -> str:
    return f"{where}: {name}" if where else name


@lru_cache(maxsize=256)
def _fields_of(cls: Any) -> Mapping[str, tuple[Any, bool]]:
    """Name → type of the fields of a dataclass or a struct, and whether the field is required."""
    hints = get_type_hints(cls)
    if issubclass(cls, msgspec.Struct):
        return {field.name: (hints[field.name], field.required) for field in msgspec.structs.fields(cls)}
    bare = dataclasses.MISSING
    fields = (f for f in dataclasses.fields(cls) if f.init)
    return {f.name: (hints[f.name], f.default is bare and f.default_factory is bare) for f in fields}


def _is_record(of: Any) -> bool:
    return isinstance(of, type) and (issubclass(of, msgspec.Struct) or dataclasses.is_dataclass(of))


def record(cls: type[T], table: object, where: str, *, known: Iterable[str] = (), form: str = "an object") -> T:
    """Return the dataclass or struct that a table describes, at any depth.

    Parameters
    ----------
    known : further valid keys, for suggestions
    form : name of a table in the file's language

    Raises
    ------
    SpecError
        A key is unknown, or a value is missing or of another type; the message starts with its place.
    """
    fields = _fields_of(cls)
    config = getattr(cls, "__struct_config__", None)
    tag = (config.tag_field,) if config is not None and config.tag_field else ()
    values = expect_keys(table, (*tag, *fields, *known), where, form)
    for name, (_, is_required) in fields.items():
        if is_required and name not in values:
            raise SpecError(f"{where}: {name!r} is missing")
    start = f"{where}." if where else ""
    arguments = {
        name: value_from_table(one, fields[name][0], start + name, form=form)
        for name, one in values.items()
        if name in fields
    }
    try:
        return cls(**arguments)
    except SpecError as error:
        raise SpecError(f"{where}: {error}" if where else str(error), hint=error.hint) from None


def value_from_table(value: object, to: Any, where: str, *, form: str = "an object") -> Any:
    """Return a value of a JSON or TOML file as type `to`: records by `record`, everything else by `checked_value`."""
    options = get_args(to) if get_origin(to) in (UnionType, Union) else (to,)
    if value is None and type(None) in options:
        return None
    records = [one for one in options if _is_record(one)]
    if records and (isinstance(value, dict) or len(records) == len(options) - (type(None) in options)):
        return record(_record_class_of(value, records, where, form), value, where, form=form)
    for one in options:
        origin, args = get_origin(one), get_args(one)
        if origin is Mapping and isinstance(value, dict):
            return {name: value_from_table(item, args[1], f"{where}.{name}", form=form) for name, item in value.items()}
        if origin is tuple and isinstance(value, list | tuple) and args[-1] is Ellipsis:
            return tuple(value_from_table(item, args[0], f"{where}[{i}]", form=form) for i, item in enumerate(value))
    return checked_value(value, to, where)


def _record_class_of(value: object, records: list[type[Any]], where: str, form: str) -> type[Any]:
    """Return the record type that the tag of a table selects."""
    config = getattr(records[0], "__struct_config__", None)
    if config is None or config.tag_field is None:
        return records[0]
    by_tag = {str(one.__struct_config__.tag): one for one in records}
    kind = value.get(config.tag_field) if isinstance(value, dict) else None
    if isinstance(value, dict) and (not isinstance(kind, str) or kind not in by_tag):
        raise SpecError(f"{where}: unknown {config.tag_field} {format_value(kind)}", hint=suggestion(kind, by_tag))
    return by_tag.get(str(kind), records[0])


def entries(table: object, types: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the entries of `table` as their `types`; raise `SpecError` if one is unknown or of another type."""
    return {
        name: checked_value(value, types[name], f"{where}.{name}")
        for name, value in expect_keys(table, types, where).items()
    }


def argument_types(target: Callable[..., Any]) -> dict[str, Any]:
    """Name → type of all keyword parameters of `target`: a function, a dataclass or a struct."""
    if inspect.isclass(target) and issubclass(target, msgspec.Struct):
        hints = get_type_hints(target)
        return {name: hints[name] for name in target.__struct_fields__}
    if inspect.isclass(target) and dataclasses.is_dataclass(target):
        hints = get_type_hints(target)
        return {f.name: hints[f.name] for f in dataclasses.fields(target) if f.init}
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {name: hints[name] for name in inspect.signature(target).parameters}


def required_arguments(target: Callable[..., Any]) -> list[str]:
    """Names of the required parameters of `target`."""
    empty = inspect.Parameter.empty
    return [name for name, p in inspect.signature(target).parameters.items() if p.default is empty]


def call_with_table(target: Callable[..., T], table: object, where: str, *, kind: str = "", **defaults: Any) -> T:
    """Call `target` with the entries of `table`, and with `defaults` for missing entries.

    `kind` is the name of `target` in the table, if it has one.

    Raises
    ------
    SpecError
        An entry is unknown, ill-typed or missing; the message has `where` and its name.
    """
    types = argument_types(target)
    arguments = {**{name: value for name, value in defaults.items() if name in types}, **entries(table, types, where)}
    missing = [name for name in required_arguments(target) if name not in arguments]
    if missing:
        entries_text = ", ".join(f"{name} = …" for name in missing)
        form = f'{{ kind = "{kind}", {entries_text} }}' if kind else f"add {entries_text}"
        raise SpecError(f"{where}: {', '.join(missing)} must be given", hint=form)
    try:
        return target(**arguments)
    except SpecError as error:
        raise SpecError(f"{where}: {error}", hint=error.hint) from None


def build_from_registry(registry: Mapping[str, Callable[..., T]], value: object, where: str, **defaults: Any) -> T:
    """Create the value selected by a name, or by a table with the name under ``kind``, from `registry`.

    Installed packages may add names: see `base.plugins`.
    """
    table = {"kind": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise SpecError(
            f"{where}: expected a name or a table with a kind, got {format_value(value)}", hint=_names(registry)
        )
    kind = table["kind"]
    if kind not in registry:
        load_plugins()
    if kind not in registry:
        raise SpecError(f"{where}: unknown kind {kind!r}", hint=suggestion(kind, registry))
    rest = {key: item for key, item in table.items() if key != "kind"}
    return call_with_table(registry[kind], rest, where, kind=kind, **defaults)


def _names(registry: Mapping[str, object]) -> str:
    return "one of " + ", ".join(registry)
