"""``POST /v1/embeddings``."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from volumetric.base._typing import F32Array
from volumetric.base.errors import DoesNotFitError, VolumetricError
from volumetric.serve.bodies import read_body
from volumetric.serve.event_stream import cancel_on_disconnect
from volumetric.serve.fields.embedding_request import EmbeddingRequest
from volumetric.serve.problem import bad_request, problem_of
from volumetric.serve.serving import json_bytes

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.serve.serving import Serving


async def embeddings(request: Request) -> Response:
    """Embed texts. Requests run one after the other: an encoder batches the texts of each."""
    serving: Serving = request.app.state.serving
    body = await read_body(request, EmbeddingRequest)
    served = serving.model(body.model)
    body.check()
    texts = body.texts()
    if served.engine is not None:
        raise bad_request(f"{served.name} generates text; serve an encoder for embeddings", param="model")
    try:
        async with cancel_on_disconnect(request.receive), served.embedding:
            rows, tokens = await serving.encoding(_embed_texts, served.model, texts, body.truncate_prompt_tokens)
    except VolumetricError as error:
        raise problem_of(error, param="input") from None
    body.check_width(rows.shape[1])
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": _encode_vector(row, base64_text=body.encoding_format == "base64"),
        }
        for i, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": data, "model": served.name, "usage": usage}
    return Response(json_bytes(answer), media_type="application/json")


def _encode_vector(row: F32Array, *, base64_text: bool) -> str | list[float]:
    if base64_text:
        return base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()
    return row.tolist()


def _embed_texts(model: Model, texts: list[str], cut: int | None) -> tuple[F32Array, int]:
    """Return embeddings, and their number of tokens; texts that are too long are truncated only if `cut` is set.

    Raises
    ------
    DoesNotFitError : a text is longer than the model's limit
    SpecError : `cut` is larger than that limit
    """
    encoder = model.text_encoder
    limit, counts = encoder.length(None if cut == -1 else cut), encoder.counts(texts)
    if cut is None and max(counts) > limit:
        at = next(i for i, count in enumerate(counts) if count > limit)
        raise DoesNotFitError(
            f"input[{at}] has {counts[at]} tokens, the model accepts at most {limit}",
            hint="shorten it, or truncate texts with truncate_prompt_tokens: -1",
        )
    return model.embed(texts, max_length=limit), sum(min(count, limit) for count in counts)
