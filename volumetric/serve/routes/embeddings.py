"""``POST /v1/embeddings``."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from volumetric._typing import F32Array
from volumetric.errors import VolumetricError
from volumetric.serve.bodies import body_of
from volumetric.serve.fields.embedding import EmbeddingRequest
from volumetric.serve.problem import bad, problem_of
from volumetric.serve.serving import encoded

if TYPE_CHECKING:
    from volumetric.serve.serving import Serving


async def embeddings(request: Request) -> Response:
    """Turn texts into vectors, one after the other: an encoder takes them together anyway."""
    serving: Serving = request.app.state.serving
    asked = await body_of(request, EmbeddingRequest)
    served = serving.model(asked.model)
    asked.check()
    texts = asked.texts()
    if served.engine is not None:
        raise bad(f"{served.name} generates text; serve an encoder for embeddings", param="model")
    try:
        async with served.embedding:
            rows: F32Array = await serving.aside(served.model.embed, texts)
            tokens = await serving.aside(_count, served.model, texts)
    except VolumetricError as error:
        raise problem_of(error, param="input") from None
    data = [
        {"object": "embedding", "index": i, "embedding": _told(row, base64_text=asked.encoding_format == "base64")}
        for i, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    told = {"object": "list", "data": data, "model": served.name, "usage": usage}
    return Response(encoded(told), media_type="application/json")


def _told(row: F32Array, *, base64_text: bool) -> str | list[float]:
    if base64_text:
        return base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()
    return row.tolist()


def _count(model: object, texts: list[str]) -> int:
    tokenizer = getattr(model, "tokenizer", None)
    return 0 if tokenizer is None else sum(len(tokenizer.encode(text)) for text in texts)
