"""The body of a request for embeddings."""

from __future__ import annotations

from typing import Literal

import msgspec

from volumetric.serve.problem import bad

MOST_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /v1/embeddings``."""

    input: str | list[str | int | list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None

    def check(self) -> None:
        """Raise `RequestError` for what cannot be honoured."""
        if self.dimensions is not None:
            raise bad("dimensions is not supported: embeddings have the model's own width", param="dimensions")

    def texts(self) -> list[str]:
        """Return the texts to embed. Raises `RequestError` for token ids, and for none or too many."""
        found = [self.input] if isinstance(self.input, str) else list(self.input)
        if not 1 <= len(found) <= MOST_INPUTS:
            raise bad(f"input must be 1 to {MOST_INPUTS} texts, got {len(found)}", param="input")
        texts = [one for one in found if isinstance(one, str)]
        if len(texts) < len(found):
            raise bad("input must be text: give texts instead of token ids", param="input")
        return texts
