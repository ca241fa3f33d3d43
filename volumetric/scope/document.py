"""What a page of the scope shows: views with data, encoded as JSON and blobs of numbers."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError

VERSION: Final = 1
_DTYPES: Final = {"bool": "uint8", "int64": "int32", "uint64": "uint32"}
"""Dtypes that JavaScript has no plain arrays of, and what they are stored as."""
_KNOWN: Final = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeView:
    """One view of a page, which the page shows as a tab.

    Attributes
    ----------
    kind : name of the script ``web/views/KIND.js`` that draws it
    name : unique among the views of a document; in links and messages
    label : title of the tab
    data : JSON data in which NumPy arrays may stand anywhere; the script gets them as typed arrays
    """

    kind: str
    name: str
    label: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeDocument:
    """Everything that a page shows.

    Attributes
    ----------
    title : plain text
    source : where it comes from, such as a path; plain text
    views : in the order of their tabs

    Raises
    ------
    SpecError : there are no views, or two have one name
    """

    title: str
    source: str
    views: tuple[ScopeView, ...]

    def __post_init__(self) -> None:
        """Check that there is something to show."""
        names = [view.name for view in self.views]
        if not names or len(set(names)) != len(names):
            raise SpecError(f"a page needs views of different names, got {', '.join(names) or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocument:
    """A document as text and bytes.

    Attributes
    ----------
    json : JSON text; an array stands in it as ``{"$array": blob, "dtype": …, "shape": […]}``
    blobs : bytes of each array, gzip-compressed, little-endian
    """

    json: str
    blobs: tuple[bytes, ...]


def encode_document(document: ScopeDocument) -> EncodedDocument:
    """Return a document as JSON and blobs.

    Raises
    ------
    SpecError : the data has a value that JSON and typed arrays cannot hold
    """
    blobs: list[bytes] = []
    views = [
        {"kind": view.kind, "name": view.name, "label": view.label, "data": _plain(view.data, blobs, view.name)}
        for view in document.views
    ]
    content = {"version": VERSION, "title": document.title, "source": document.source, "views": views}
    return EncodedDocument(json=json.dumps(content, separators=(",", ":"), allow_nan=False), blobs=tuple(blobs))


def encode_message(message: Mapping[str, Any]) -> str:
    """Return a message to a page as JSON, with arrays in base64 (``{"$base64": …, "dtype": …, "shape": […]}``)."""
    return json.dumps(_plain(message, None, "message"), separators=(",", ":"), allow_nan=False)


def _plain(value: Any, blobs: list[bytes] | None, where: str) -> Any:
    """Return JSON data for a value; numbers that are not finite become text, since JSON has none."""
    match value:
        case None | bool() | str():
            return value
        case np.ndarray():
            return _array(value, blobs, where)
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            number = float(value)
            return number if math.isfinite(number) else str(number)
        case Mapping():
            return {str(key): _plain(of, blobs, f"{where}.{key}") for key, of in value.items()}
        case Sequence():
            return [_plain(of, blobs, f"{where}[{i}]") for i, of in enumerate(value)]
        case _:
            raise SpecError(f"{where}: a page cannot hold a {type(value).__name__}")


def _array(array: Array, blobs: list[bytes] | None, where: str) -> dict[str, Any]:
    name = _DTYPES.get(array.dtype.name, array.dtype.name)
    if name not in _KNOWN:
        raise SpecError(f"{where}: a page cannot hold an array of {array.dtype.name}")
    if array.dtype.kind in "iu" and name != array.dtype.name and array.size:
        limits = np.iinfo(name)
        if array.min() < limits.min or array.max() > limits.max:
            raise SpecError(f"{where}: numbers beyond {name}, up to {array.max()}")
    raw = np.ascontiguousarray(array, np.dtype(name).newbyteorder("<")).tobytes()
    about = {"dtype": name, "shape": list(array.shape)}
    if blobs is None:
        return {"$base64": base64.b64encode(raw).decode(), **about}
    blobs.append(gzip.compress(raw, 6, mtime=0))
    return {"$array": len(blobs) - 1, **about}
