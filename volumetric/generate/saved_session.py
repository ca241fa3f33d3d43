"""Sessions as bytes: the tokens of one, and the state that a device has computed of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from volumetric.atomic import write_atomic
from volumetric.errors import CheckpointError
from volumetric.generate.session import Session
from volumetric.runtime.device import State
from volumetric.runtime.sealed import Seal

if TYPE_CHECKING:
    from volumetric.generate.model import Model

SEAL = Seal(magic=b"VOLSESSN", version=1, what="a saved session")


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[int]


def restore_session(model: Model, path: str | os.PathLike[str]) -> Session:
    """See `Model.session`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror or error}", hint="give what Session.save wrote"
        ) from None
    try:
        saved, body = SEAL.open(data, _Saved)
        state = model.executable.restore(bytes(body))
        if state.position != len(saved.tokens):
            raise SEAL.damaged(f"it has {len(saved.tokens)} tokens and a state of {state.position}")
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}", hint=error.hint) from None
    return Session(model, state, saved.tokens)


def save_session(path: str | os.PathLike[str], tokens: Sequence[int], state: State) -> None:
    """See `Session.save`."""
    write_atomic(path, SEAL.close(_Saved(tokens=list(tokens)), [state.save()]))
