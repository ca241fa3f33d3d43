"""The body of a request for embeddings."""

from __future__ import annotations

from typing import Literal

import msgspec

from volumetric.serve.problem import bad_request

MOST_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /v1/embeddings``."""

    input: str | list[str | int | list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None

    def check(self) -> None:
        """Raise `RequestError` for an invalid length."""
        cut = self.truncate_prompt_tokens
        if cut is not None and cut != -1 and cut < 1:
            message = f"truncate_prompt_tokens must be 1 or more, or -1 for the model's limit, got {cut}"
            raise bad_request(message, param="truncate_prompt_tokens", code="invalid_value")

    def check_width(self, width: int) -> None:
        """Raise `RequestError` for a width other than the model's."""
        if self.dimensions not in (None, width):
            raise bad_request(f"dimensions can only be {width}, the model's own width", param="dimensions")

    def texts(self) -> list[str]:
        """Return the texts to embed. Raises `RequestError` for token ids, and for none or too many."""
        inputs = [self.input] if isinstance(self.input, str) else list(self.input)
        if not 1 <= len(inputs) <= MOST_INPUTS:
            raise bad_request(f"input must be 1 to {MOST_INPUTS} texts, got {len(inputs)}", param="input")
        texts = [one for one in inputs if isinstance(one, str)]
        if len(texts) < len(inputs):
            raise bad_request("input must be text: send texts instead of token ids", param="input")
        return texts
