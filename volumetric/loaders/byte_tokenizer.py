"""A tokenizer for networks that read bytes: token n is the byte n."""

from __future__ import annotations

import json


def byte_tokenizer_json() -> bytes:
    """Return the ``tokenizer.json`` of 256 tokens, one for each byte, in the order of the bytes."""
    symbols = _symbols()
    vocabulary = {symbols[byte]: byte for byte in range(256)}
    pieces = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": pieces,
            "post_processor": None,
            "decoder": pieces,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        },
        ensure_ascii=False,
        indent=1,
    ).encode()


def _symbols() -> list[str]:
    """Return the printable character of each byte in byte-level vocabularies (GPT-2's table)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]
