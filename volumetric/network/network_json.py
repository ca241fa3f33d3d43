"""Network ↔ JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

import msgspec

from volumetric.base.config_tables import convert, expect_keys, value_from_table
from volumetric.base.errors import PluginError, SpecError
from volumetric.base.hints import suggestion
from volumetric.base.plugin_record import KEY, check_record, plugin_record
from volumetric.formula.unary_functions import ACTIVATIONS
from volumetric.layers import LAYERS, LayerSpec
from volumetric.layers.layer_spec import fields_of
from volumetric.network.grid import Coord, Grid, Link, Port
from volumetric.network.network import Network

FORMAT = "volumetric.network"
VERSION = 1
_KEYS = ("format", "version", KEY, "grid", "input", "layers", "links", "disabled", "inputs", "outputs")


def network_to_json(network: Network) -> str:
    """Return JSON text with sorted coordinates and without default values."""
    return to_text(network_to_dict(network))


def to_text(data: Mapping[str, Any]) -> str:
    """Return an object as the text of a file."""
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def network_to_dict(network: Network) -> dict[str, Any]:
    """Return the data of `network_to_json`."""
    data: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "grid": list(network.grid.sides),
        "input": {"shape": list(network.input_shape), "dtype": network.input_dtype},
        "layers": {str(coord): spec_to_dict(spec) for coord, spec in network.layers.items()},
        "links": [_link_to_dict(link) for link in network.links],
        "disabled": [str(coord) for coord in sorted(network.disabled)],
    }
    if network.inputs:
        data["inputs"] = {name: _port_to_dict(port) for name, port in network.inputs.items()}
    if network.outputs:
        data["outputs"] = {name: str(coord) for name, coord in network.outputs.items()}
    record = plugin_record(parts_of(network))
    return {"format": FORMAT, "version": VERSION, KEY: record, **data} if record else data


def parts_of(network: Network) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the parts of a network that may be defined outside the engine."""
    for spec in network.layers.values():
        yield from _parts_of_layer(spec)


def _parts_of_layer(spec: LayerSpec) -> Iterator[tuple[str, str]]:
    yield "layer", spec.kind
    for value in fields_of(spec).values():
        if isinstance(value, str) and ACTIVATIONS.module_of(value) is not None:
            yield "activation", value
    for child in spec.children().values():
        yield from _parts_of_layer(child)


def spec_to_dict(spec: LayerSpec) -> dict[str, Any]:
    """Return the kind and the fields that differ from their defaults."""
    out: dict[str, Any] = {"kind": spec.kind}
    defaults = {f.name: f.default for f in dataclasses.fields(spec)}  # pyright: ignore[reportArgumentType]  (specs are dataclasses)
    for name, value in fields_of(spec).items():
        if name == spec.children_field:
            one = isinstance(value, LayerSpec)
            out[name] = spec_to_dict(value) if one else [spec_to_dict(child) for child in value]
        elif value != defaults[name]:
            out[name] = _field_to_builtins(value)
    return out


def _field_to_builtins(value: Any) -> Any:
    """Return a field as builtins; for a dataclass, the fields that differ from their defaults."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return msgspec.to_builtins(value)
    pairs = {f.name: (getattr(value, f.name), f.default) for f in dataclasses.fields(value)}
    return {name: _field_to_builtins(one) for name, (one, default) in pairs.items() if one != default}


def _link_to_dict(link: Link) -> dict[str, str | int]:
    fields = {f.name: getattr(link, f.name) for f in dataclasses.fields(link) if f.name != "delay"}
    out: dict[str, str | int] = {name: str(value) for name, value in fields.items() if value is not None}
    return {**out, "delay": link.delay} if link.delay else out


def _port_to_dict(port: Port) -> dict[str, Any]:
    default = {} if port.default is None else {"default": port.default}
    return {
        "coord": str(port.coord),
        "shape": list(port.shape),
        "dtype": port.dtype,
        "combine": port.combine,
        **default,
    }


def network_from_json(text: str | bytes) -> Network:
    """Read a network; the inverse of `network_to_json`."""
    return network_from_dict(read_text(text, "network"))


def read_text(text: str | bytes, what: str) -> Any:
    """Parse JSON; `what` names the text in the error."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{what}: not valid JSON ({error})") from None


def check_head(data: Any, allowed: tuple[str, ...], what: str, *, form: str, version: int) -> None:
    """Raise `SpecError` unless `data` is an object of the format and version, without unknown keys."""
    expect_keys(data, allowed, "$", "an object")
    if data.get("format") != form:
        raise SpecError(f"{what}: format is {data.get('format')!r}, expected {form!r}")
    if data.get("version") != version:
        raise SpecError(
            f"{what}: version {data.get('version')!r} is not supported", hint=f"supported is version {version}"
        )


def network_from_dict(data: Any) -> Network:
    """Read a network; the inverse of `network_to_dict`."""
    check_head(data, _KEYS, "network", form=FORMAT, version=VERSION)
    check_record(data.get(KEY, {}), "network")
    input_fields = convert(data.get("input", {}), dict[str, Any], "$.input")
    expect_keys(input_fields, ("shape", "dtype"), "$.input", "an object")
    layers = convert(data.get("layers", {}), dict[str, dict[str, Any]], "$.layers")
    inputs = convert(data.get("inputs", {}), dict[str, dict[str, Any]], "$.inputs")
    outputs = convert(data.get("outputs", {}), dict[str, str], "$.outputs")
    return Network(
        grid=Grid(*convert(data.get("grid"), tuple[int, int, int, int], "$.grid")),
        layers={Coord.parse(c): spec_from_dict(d, f"$.layers.{c}") for c, d in layers.items()},
        links=tuple(_link(d, f"$.links[{i}]") for i, d in enumerate(convert(data.get("links", []), list, "$.links"))),
        disabled=frozenset(map(Coord.parse, convert(data.get("disabled", []), list[str], "$.disabled"))),
        input_shape=convert(input_fields.get("shape", []), tuple[int, ...], "$.input.shape"),
        input_dtype=convert(
            input_fields.get("dtype", "int32"), get_type_hints(Network)["input_dtype"], "$.input.dtype"
        ),
        inputs={name: _port(d, f"$.inputs.{name}") for name, d in inputs.items()},
        outputs={name: Coord.parse(coord) for name, coord in outputs.items()},
    )


def spec_from_dict(data: Mapping[str, Any], where: str = "$") -> LayerSpec:
    """Read a spec; the inverse of `spec_to_dict`. Errors of unknown kinds and fields and wrong types name `where`."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in LAYERS:
        raise PluginError(
            f"{where}: unknown layer kind {kind!r}",
            hint=suggestion(kind, LAYERS, f"import the module that defines it before; layers: {', '.join(LAYERS)}"),
        )
    cls = LAYERS[kind]
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]  # pyright: ignore[reportArgumentType]  (specs are dataclasses)
    expect_keys(data, ("kind", *names), where, "an object")
    fields: dict[str, Any] = {}
    for name in names:
        if name not in data:
            continue
        place = f"{where}.{name}"
        if name == cls.children_field and hints[name] is LayerSpec:
            fields[name] = spec_from_dict(convert(data[name], dict[str, Any], place), place)
        elif name == cls.children_field:
            children = convert(data[name], list[dict[str, Any]], place)
            fields[name] = tuple(spec_from_dict(child, f"{place}[{i}]") for i, child in enumerate(children))
        else:
            fields[name] = value_from_table(data[name], hints[name], place)
    try:
        return cls(**fields)
    except TypeError as error:
        raise SpecError(f"{where}: {kind}: {error}") from None
    except SpecError as error:
        raise SpecError(f"{where}: {error}", hint=error.hint) from None


def _link(data: Any, where: str) -> Link:
    names = tuple(f.name for f in dataclasses.fields(Link))
    expect_keys(data, names, where, "an object")
    fields: dict[str, Any] = convert({k: v for k, v in data.items() if k != "delay"}, dict[str, str], where)
    fields["delay"] = convert(data.get("delay", 0), int, f"{where}.delay")
    for end in ("source", "target"):
        if end not in fields:
            raise SpecError(f"{where}: a link needs a {end}")
        fields[end] = Coord.parse(fields[end])
    if "kind" not in fields:
        raise SpecError(f"{where}: a link needs a kind")
    return Link(**fields)


def _port(data: dict[str, Any], where: str) -> Port:
    expect_keys(data, tuple(f.name for f in dataclasses.fields(Port)), where, "an object")
    if "coord" not in data:
        raise SpecError(f"{where}: an input needs a coord")
    hints = get_type_hints(Port)
    fields = {name: convert(value, hints[name], f"{where}.{name}") for name, value in data.items() if name != "coord"}
    return Port(coord=Coord.parse(convert(data["coord"], str, f"{where}.coord")), **fields)
