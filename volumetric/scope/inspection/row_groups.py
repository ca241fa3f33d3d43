"""Names of the parts of weight matrices: heads of attention, gates of recurrent cells."""

from __future__ import annotations

from typing import Any, Final

from volumetric.layers import LayerSpec, MultiHeadAttention
from volumetric.layers.recurrent import Recurrent

_GATES: Final = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n"), "rnn": ("h",)}


def part_names(spec: LayerSpec, name: str) -> dict[str, Any] | None:
    """Return how a parameter of a layer is divided: ``axis`` (0 rows, 1 columns), ``size``, ``names``; None: not.

    Parameters
    ----------
    name : path of the parameter below the layer, which may lead through nested layers
    """
    for path, child in spec.children().items():
        if name.startswith(f"{path}/"):
            return part_names(child, name.removeprefix(f"{path}/"))
    if isinstance(spec, MultiHeadAttention):
        letter, _, kind = name.partition(".")
        counts = {"q": spec.num_heads, "k": spec.kv_heads, "v": spec.kv_heads, "o": spec.num_heads}
        if letter in counts and (letter != "o" or kind == "weight"):
            heads = [f"head {i}" if letter in "qo" else f"{letter} head {i}" for i in range(counts[letter])]
            return {"axis": 1 if letter == "o" or kind == "bias" else 0, "size": spec.width, "names": heads}
    if isinstance(spec, Recurrent) and spec.kind in _GATES and name.partition(".")[0] in ("ih", "hh"):
        gates = [f"gate {gate}" for gate in _GATES[spec.kind]]
        return {"axis": 0 if name.endswith("weight") else 1, "size": spec.hidden_size, "names": gates}
    return None
