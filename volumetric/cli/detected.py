"""What `inspect` says of weights without a configuration."""

from __future__ import annotations

import json as jsonlib
from typing import TYPE_CHECKING, Any

from volumetric.cli import console

if TYPE_CHECKING:
    from volumetric.loaders.detect import Detection


def show_detection(found: Detection, *, json: bool, tensors: bool) -> None:
    """Print what was recognised, why, and what is not known.

    Parameters
    ----------
    json : as one JSON object
    tensors : each layer on its own, with the names of its tensors
    """
    if json:
        console.write(jsonlib.dumps(describe(found), indent=2, default=str) + "\n")
        return
    from volumetric.loaders.detect.findings import collapsed

    console.write(f"taken for:  {found.architecture or 'nothing that makes a network'} ({found.certainty})\n")
    console.write(f"because:    {found.reason}\n")
    shown = list(found.findings if tensors else collapsed(found.findings))
    columns = ("tensors", "taken for", "certainty", "because")
    console.table(columns, [[f.path or "(root)", f.what or "not recognised", f.certainty, f.reason] for f in shown])
    if tensors:
        names = [[name, f.path or "(root)"] for f in shown for name in f.tensors]
        console.table(("tensor", "of"), names)
    rows = [[name, str(one.value), one.reason] for name, one in found.known.items()]
    rows += [[name, value, "by convention; --assume says otherwise"] for name, value in found.assumed.items()]
    rows += [[name, "?", why] for name, why in found.missing.items()]
    if rows:
        console.table(("value", "is", "because"), rows)
    if found.left_out:
        console.table(("left out", "because"), [[name, why] for name, why in found.left_out.items()])
    if found.missing:
        console.note("to run it, say " + " ".join(f"--assume {name}=…" for name in found.missing))


def describe(found: Detection) -> dict[str, Any]:
    """Return a detection as plain data."""
    return {
        "architecture": found.architecture,
        "certainty": found.certainty,
        "reason": found.reason,
        "findings": [
            {"path": f.path, "what": f.what, "certainty": f.certainty, "reason": f.reason, "tensors": list(f.tensors)}
            for f in found.findings
        ],
        "known": {name: {"value": one.value, "reason": one.reason} for name, one in found.known.items()},
        "assumed": dict(found.assumed),
        "missing": dict(found.missing),
        "left_out": dict(found.left_out),
    }
