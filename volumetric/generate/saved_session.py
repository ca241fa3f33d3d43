"""Saved sessions: the tokens, and the state that a device has computed for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError
from volumetric.run.checked_blob import BlobFormat
from volumetric.run.device import Executable, State

SEAL = BlobFormat(magic=b"VOLSESSN", version=1, what="a saved session")


class _SessionRecord(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[int]


def read_session(executable: Executable, path: str | os.PathLike[str]) -> tuple[State, list[int]]:
    """Return a state and its tokens; see `Model.session`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror or error}", hint="pass a file of Session.save"
        ) from None
    try:
        saved, body = SEAL.unpack(data, _SessionRecord)
        state = executable.restore(bytes(body))
        if state.position != len(saved.tokens):
            raise SEAL.damaged_error(f"it has {len(saved.tokens)} tokens and a state of {state.position}")
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}", hint=error.hint) from None
    return state, saved.tokens


def save_session(path: str | os.PathLike[str], tokens: Sequence[int], state: State) -> None:
    """See `Session.save`."""
    write_atomic(path, SEAL.pack(_SessionRecord(tokens=list(tokens)), [state.save()]))
