"""Runs under a Python that has `welvet`, the binding of the Go engine: answers questions that come as JSON lines."""

from __future__ import annotations

import contextlib
import json
import sys

from welvet import utils  # pyright: ignore[reportMissingImports]  (installed in that other Python alone)


def answer(question: dict) -> dict:
    """Read a network, perhaps convert its layers, write it again and run it."""
    handle = utils.deserialize_network(question["text"])
    try:
        if question.get("dtype") is not None:
            for layer in range(question["layers"]):
                with contextlib.suppress(RuntimeError):  # a layer without weights of its own
                    utils.morph_layer(handle, layer, question["dtype"])
        text = utils.serialize_network(handle)
    finally:
        utils.free_network(handle)
    handle = utils.deserialize_network(text)  # as whoever reads the file would run it
    try:
        return {"text": text, "y": utils.forward_polymorphic(handle, question["x"], question["shape"])}
    finally:
        utils.free_network(handle)


for line in sys.stdin:
    try:
        reply = answer(json.loads(line))
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
