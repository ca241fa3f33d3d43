"""Bytes with a header and a checksum, read without trust in them: saved states and sessions.

A magic word of 8 bytes, a version (uint32), the length of the header (uint64), the header in JSON, the body, and
SHA-256 of all before. Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from volumetric.base.errors import CheckpointError

_START = struct.Struct("<8sIQ")
_DIGEST = hashlib.sha256().digest_size

H = TypeVar("H", bound=msgspec.Struct)

_HOW = "give what save() returned, or the content of a file that it was written to"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A kind of sealed bytes.

    Attributes
    ----------
    magic : 8 bytes that they begin with
    version : of what is written and read
    what : their name in messages
    """

    magic: bytes
    version: int
    what: str

    def close(self, header: msgspec.Struct, body: Iterable[bytes | memoryview]) -> bytes:
        """Return header and body as one."""
        text = msgspec.json.encode(header)
        parts = [_START.pack(self.magic, self.version, len(text)), text, *body]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        return b"".join([*parts, digest.digest()])

    def open(self, data: bytes, header: type[H]) -> tuple[H, memoryview]:
        """Return the header and the body of what `close` returned.

        Raises
        ------
        CheckpointError : anything else
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise CheckpointError(
                f"{self.what} is bytes, got {type(data).__name__}",
                hint=_HOW,
            )
        view = memoryview(bytes(data) if isinstance(data, memoryview) else data)
        if len(view) < _START.size + _DIGEST or view[: len(self.magic)] != self.magic:
            raise CheckpointError(
                f"these bytes are no {self.what.removeprefix('a ')}",
                hint=_HOW,
            )
        _, version, length = _START.unpack_from(view)
        if version != self.version:
            raise CheckpointError(
                f"{self.what} of version {version}; this release reads version {self.version}",
                hint="read it with the release that wrote it",
            )
        sealed = view[:-_DIGEST]
        if hashlib.sha256(sealed).digest() != view[-_DIGEST:]:
            raise self.damaged("its checksum is wrong")
        start = _START.size + length
        if start > len(sealed):
            raise self.damaged("its header is cut short")
        try:
            return msgspec.json.decode(sealed[_START.size : start], type=header), sealed[start:]
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.damaged(f"its header says nothing that this release knows ({error})") from None

    def damaged(self, why: str) -> CheckpointError:
        """Return the error that says so."""
        return CheckpointError(f"{self.what} is damaged: {why}", hint="it is of no use: compute the prompt again")
