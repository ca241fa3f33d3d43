"""Untrusted bytes with a header and a checksum: saved states and sessions.

A magic of 8 bytes, a version (uint32), the length of the header (uint64), the header in JSON, the body, and SHA-256 of
all of these. Numbers are little-endian.
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

_HOW = "pass the bytes that save() returned, or the content of the file that they were written to"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobFormat:
    """A kind of sealed bytes.

    Attributes
    ----------
    magic : the first 8 bytes
    version : version that is written and read
    what : name in messages
    """

    magic: bytes
    version: int
    what: str

    def pack(self, header: msgspec.Struct, body: Iterable[bytes | memoryview]) -> bytes:
        """Return header and body as sealed bytes."""
        text = msgspec.json.encode(header)
        parts = [_START.pack(self.magic, self.version, len(text)), text, *body]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        return b"".join([*parts, digest.digest()])

    def unpack(self, data: bytes, header: type[H]) -> tuple[H, memoryview]:
        """Return the header and the body of bytes from `close`.

        Raises
        ------
        CheckpointError : the bytes are not from `close`, of another version, or damaged
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise CheckpointError(
                f"{self.what} must be bytes, got {type(data).__name__}",
                hint=_HOW,
            )
        view = memoryview(bytes(data) if isinstance(data, memoryview) else data)
        if len(view) < _START.size + _DIGEST or view[: len(self.magic)] != self.magic:
            raise CheckpointError(
                f"the bytes are not {self.what}",
                hint=_HOW,
            )
        _, version, length = _START.unpack_from(view)
        if version != self.version:
            raise CheckpointError(
                f"{self.what} has version {version}, expected version {self.version}",
                hint="read it with the release that wrote it",
            )
        sealed = view[:-_DIGEST]
        if hashlib.sha256(sealed).digest() != view[-_DIGEST:]:
            raise self.damaged_error("its checksum is wrong")
        start = _START.size + length
        if start > len(sealed):
            raise self.damaged_error("its header is truncated")
        try:
            return msgspec.json.decode(sealed[_START.size : start], type=header), sealed[start:]
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.damaged_error(f"its header is invalid ({error})") from None

    def damaged_error(self, why: str) -> CheckpointError:
        """Return the error for damaged bytes."""
        return CheckpointError(f"{self.what} is damaged: {why}", hint="discard it, and compute the prompt again")
