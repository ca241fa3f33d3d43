"""A JSON file that describes a network: this package's ``network.json``, or a file of the Go engine."""

from __future__ import annotations

import json
from pathlib import Path

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.loaders.json_file import read_bytes
from volumetric.loaders.loom_json import is_loom, read_loom
from volumetric.loaders.native_checkpoint import MAX_NETWORK_BYTES
from volumetric.network import Network, Params
from volumetric.network.network_json import FORMAT

PROGRAM = "volumetric.program"
_GENOME = "volumetric.genome"


def read_network_file(path: str | Path) -> tuple[Network, Params | None]:
    """Read a network, or a program as a network, and its weights if the file has them.

    Raises
    ------
    CheckpointError, SpecError
        The file cannot be read or describes no network.
    """
    data = read_bytes(Path(path), MAX_NETWORK_BYTES)
    try:
        head = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}", hint="give a network.json or x.program.json") from error
    of = head.get("format") if isinstance(head, dict) else None
    if of in (FORMAT, PROGRAM):
        from volumetric.program.layer.program_declaration import Program

        try:
            return Network.from_json(data) if of == FORMAT else Program.from_json(data).network(), None
        except SpecError as error:
            raise SpecError(f"{path}: {error}", hint=error.hint) from None
    if is_loom(head):
        return read_loom(data, str(path))
    if of == _GENOME:
        hint = "open the directory `champion` that evolve wrote beside it; convert writes a genome as .py or .c"
        raise CheckpointError(f"{path} is a genome of evolve, not a network", hint=hint)
    raise CheckpointError(f"{path} describes no network", hint=f"expected the format {FORMAT!r}")
