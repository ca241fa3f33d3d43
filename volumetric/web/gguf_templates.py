"""Templates: exports of a language model whose weights a reader takes from a GGUF file. See docs/web_format.md.

What of the file goes where is not looked up: the model is recorded twice with tensors of random contents, and what
differs is recognised. So every rearrangement is covered that a recording makes, and what is computed is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.devices.gpu.recording_context import RecordedBuffer
from volumetric.loaders.generation_config import END_OF_TURN
from volumetric.loaders.gguf import open_gguf
from volumetric.loaders.model_gguf import model_of_gguf
from volumetric.loaders.model_location import resolve
from volumetric.loaders.model_texts import known_ids
from volumetric.web.drawn_tensors import DrawnTensors
from volumetric.web.filled_buffers import filled
from volumetric.web.gguf_facts import facts_of
from volumetric.web.kinds import RecordedKind
from volumetric.web.moved_bits import described_types, moved_bits
from volumetric.web.recognised_rows import Fill, RecognisedRows, kinds_of
from volumetric.web.sources import recorded_kind
from volumetric.web.variant_writer import VariantWriter
from volumetric.web.weight_pieces import WeightPieces

_SHOWN: Final = 1
"""Seed of the contents that are recognised."""
_OTHER: Final = 2
"""Seed of the contents that tell constants from weights, and prove what was recognised."""
_WHOLE: Final = "export it without --template"


def gguf_template(source: Any, *, context: int | None = None, title: str | None = None) -> GGUFTemplate:
    """Return the template of a GGUF file, whose tensors are not read.

    Parameters
    ----------
    source : path of the file, or its name in a package or a hub
    context, title : as for `export_network`

    Raises
    ------
    CheckpointError : the file cannot be read
    UnsupportedError : it is no language model
    SpecError : the source is no GGUF file
    """
    location = resolve(os.fspath(source)) if isinstance(source, str | os.PathLike) else None
    if location is None or location.kind != "gguf":
        what = type(source).__name__ if location is None else location.weights
        raise SpecError(f"a template is written from a GGUF file, not from {what}", hint="pass the path of one")
    where = str(location.weights)
    file = open_gguf(location.weights)
    tensors = DrawnTensors(file, where)
    loaded = model_of_gguf(tensors, location)
    name = file.metadata.get("general.name")
    name = name if isinstance(name, str) and name else None
    model = recorded_kind(replace(loaded, name=name or loaded.name), context=context, title=title)
    if model.kind != "language":
        raise UnsupportedError(f"{where} is no language model, and templates are for these", hint=_WHOLE)
    ends = zip(sorted(END_OF_TURN), known_ids(loaded.tokenizer, sorted(END_OF_TURN)), strict=False)
    facts = {
        "name": name,
        **facts_of(file, where),
        "ends": {token: id for token, id in ends if id is not None},
    }
    return GGUFTemplate(model, tensors, facts)


@dataclass(frozen=True)
class GGUFTemplate:
    """A language model of a GGUF file whose weights are left out: a `RecordedKind`.

    Attributes
    ----------
    model : reads `tensors`
    facts : entries of network.json that the file decides
    """

    model: RecordedKind
    tensors: DrawnTensors
    facts: Mapping[str, Any]
    _others: list[bytes] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Kind, as in network.json."""
        return self.model.kind

    @property
    def title(self) -> str:
        """Short name."""
        return self.model.title

    @property
    def origin(self) -> Mapping[str, str | None]:
        """Name and licence of the model."""
        return self.model.origin

    @property
    def files(self) -> Mapping[str, bytes]:
        """Its tokenizer."""
        return self.model.files

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record the model with two sets of weights; see `RecordedKind.record`.

        Raises
        ------
        UnsupportedError : a part of the recording depends on the numbers of the weights
        """
        self._others.clear()
        other = writer.again(_Digests(self._others))
        try:
            with np.errstate(all="ignore"):
                self.tensors.seed = _OTHER
                theirs = self.model.record(other)
                calls = other.finish()
                self.tensors.seed = _SHOWN
                ours = self.model.record(writer)
        except CheckpointError as error:
            raise UnsupportedError(
                f"{self.title} computes weights from the numbers of {self.tensors.latest}, and a template only says "
                "where numbers go",
                hint=_WHOLE,
            ) from error
        if ours != theirs or any(calls[name] != own for name, own in writer.calls().items()):
            raise UnsupportedError(f"the programs of {self.title} depend on its weights", hint=_WHOLE)
        return ours

    def contents_in(self, pieces: WeightPieces) -> _TemplateContents:
        """Return what describes the contents of its buffers."""
        return _TemplateContents(self, pieces, self._others)


class _Digests:
    """`BufferContents` that only remembers what the contents were."""

    def __init__(self, digests: list[bytes]) -> None:
        self._digests = digests

    def describe(self, buffers: Sequence[RecordedBuffer]) -> Iterator[dict[str, Any]]:
        """Take the digests of the contents of each buffer."""
        for buffer in buffers:
            self._digests.append(_digest(buffer.contents()))
            buffer.parts.clear()
            yield {}

    def entries(self) -> dict[str, Any]:
        """Return nothing: these contents are not written."""
        return {}


class _TemplateContents:
    """`BufferContents` of a template: constants are written, and everything else is explained by the tensors.

    Parameters
    ----------
    pieces : for constants
    others : digests of the contents of each buffer with the other weights
    """

    def __init__(self, template: GGUFTemplate, pieces: WeightPieces, others: Sequence[bytes]) -> None:
        self._template, self._pieces, self._others = template, pieces, others
        self._fills: dict[str, Fill] = {}
        self._known: dict[tuple[bytes, bytes], str] = {}
        self._rows: RecognisedRows | None = None

    def describe(self, buffers: Sequence[RecordedBuffer]) -> Iterator[dict[str, Any]]:
        """Yield ``fill`` for contents that differ, and the entries of constants."""
        own = [_digest(buffer.contents()) for buffer in buffers]
        pairs = list(zip(own, self._others, strict=True))
        self._explain({pair: buffer for pair, buffer in zip(pairs, buffers, strict=True) if pair[0] != pair[1]})
        numbers = {key: number for number, key in enumerate(self._fills)}
        for pair, buffer in zip(pairs, buffers, strict=True):
            if pair[0] == pair[1]:
                yield from self._pieces.describe([buffer])
            else:
                buffer.parts.clear()
                yield {"fill": numbers[self._known[pair]]}

    def entries(self) -> dict[str, Any]:
        """Return ``template`` and ``pieces``."""
        fills, tensors = list(self._fills.values()), self._template.tensors
        template = {
            **self._template.facts,
            "fixed": tensors.fixed,
            "types": described_types(kinds_of(fills, tensors)),
            "fills": fills,
        }
        return {"template": template, **self._pieces.entries()}

    def _explain(self, differing: Mapping[tuple[bytes, bytes], RecordedBuffer]) -> None:
        """Find the fills of contents, and prove each with the other weights.

        Raises
        ------
        UnsupportedError : contents are computed from the tensors
        """
        left = {pair: buffer for pair, buffer in differing.items() if pair not in self._known}
        if not left:
            return
        rows = self._rows = self._rows or RecognisedRows(self._template.tensors)
        fills: dict[bytes, Fill] = {}
        for (own, _), buffer in left.items():
            contents = buffer.contents()
            fill = rows.fill_of(contents)
            if fill is not None:
                fills[own] = fill
                rest = rows.rest_of(fill)
                if rest is not None:
                    fills.setdefault(_digest(self._filled(*rest)), rest[0])
        for (own, other), buffer in left.items():
            fill = fills.get(own)
            if fill is None or not self._is_proved(fill, buffer.contents().size, other):
                raise UnsupportedError(
                    f"{buffer.label} of {self._template.title} is computed from the file's tensors, and a template "
                    "only says where their numbers go",
                    hint=_WHOLE,
                )
            key = json.dumps(fill, ensure_ascii=False)
            self._fills.setdefault(key, fill)
            self._known[own, other] = key

    def _is_proved(self, fill: Fill, nbytes: int, digest: bytes) -> bool:
        """Whether a fill gives the contents that were recorded with the other weights."""
        self._template.tensors.seed = _OTHER
        try:
            return _digest(self._filled(fill, nbytes)) == digest
        finally:
            self._template.tensors.seed = _SHOWN

    def _filled(self, fill: Fill, nbytes: int) -> NDArray[np.uint8]:
        tensors = self._template.tensors
        types = {kind: bits for kind in kinds_of([fill], tensors) if (bits := moved_bits(kind)) is not None}
        return filled(fill, nbytes, tensors, types)


def _digest(contents: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(contents.data).digest()
