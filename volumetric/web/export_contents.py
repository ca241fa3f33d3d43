"""ExportContents: the first contents of buffers, from the files of an export."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError
from volumetric.web.opened_template import OpenedTemplate


class ExportContents:
    """Contents by the descriptions of buffers.

    Parameters
    ----------
    home : the folder
    pieces : entry of network.json
    template : what buffers are filled from in a template
    """

    def __init__(self, home: Path, pieces: Sequence[Mapping[str, Any]], template: OpenedTemplate | None) -> None:
        self._pieces, self._template = _Pieces(home, pieces), template

    def of(self, described: Mapping[str, Any]) -> NDArray[np.uint8]:
        """Return all bytes of a buffer. Raises `CheckpointError` if they are damaged."""
        if "fill" in described and self._template is not None:
            return self._template.contents(described["fill"], described["bytes"])
        contents = np.zeros(described["bytes"], np.uint8)
        data = base64.b64decode(described["data"]) if "data" in described else None
        parts = [data] if data is not None else [self._pieces.part(*part) for part in described.get("parts", ())]
        at = 0
        for part in parts:
            contents[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
        return contents


class _Pieces:
    """The pieces of a folder, each read and checked once."""

    def __init__(self, home: Path, described: Sequence[Mapping[str, Any]]) -> None:
        self._home, self._described = home, described
        self._checked: dict[int, bytes] = {}

    def part(self, piece: int, offset: int, nbytes: int) -> bytes:
        """Return bytes of a piece. Raises `CheckpointError` if it is damaged."""
        if piece not in self._checked:
            one = self._described[piece]
            data = (self._home / one["file"]).read_bytes()
            if len(data) != one["bytes"] or hashlib.sha256(data).hexdigest() != one["sha256"]:
                raise CheckpointError(f"{self._home / one['file']} is damaged", hint="export the network again")
            self._checked[piece] = data
        return self._checked[piece][offset : offset + nbytes]
