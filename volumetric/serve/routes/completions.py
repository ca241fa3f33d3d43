"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from volumetric.base.errors import GenerationError
from volumetric.serve.bodies import body_of
from volumetric.serve.completing import check_room, complete, engine_of, jobs_of
from volumetric.serve.echo import EchoShape
from volumetric.serve.event_stream import present
from volumetric.serve.fields.completion import CompletionRequest
from volumetric.serve.filling import filling_of
from volumetric.serve.forms import grammar_of
from volumetric.serve.problem import problem_of
from volumetric.serve.shapes import TextShape

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.serve.serving import Served, Serving


async def completions(request: Request) -> Response:
    """Continue prompts."""
    serving: Serving = request.app.state.serving
    asked = await body_of(request, CompletionRequest)
    served = serving.model(asked.model)
    engine_of(served)
    asked.check()
    context = served.model.info.context
    whole = asked.add_special_tokens is not False
    encode = partial(served.model.encode if whole else partial(_bare, served.model), limit=context)
    if asked.suffix:
        filling = filling_of(served.name, served.model.tokenizer)
        asked.stop_token_ids = [*(asked.stop_token_ids or ()), *filling.ends]
        encode = partial(filling.prompt, after=asked.suffix, limit=context)
    async with present(request.receive):
        try:
            given = await serving.aside(_prompts, served, asked)
            prompts = [await serving.aside(encode, one, size=len(one) + len(asked.suffix or "")) for one in given]
        except GenerationError as error:
            raise problem_of(error, param="prompt") from None
        grammar = await grammar_of(serving, served, asked)
    told = served.told_of(asked) | {"sizes": list(map(len, prompts)), "texts": asked.texts}
    shape = TextShape(**told)
    if asked.echo:
        texts = [one if isinstance(one, str) else served.text(one) for one in given]
        echoed = list(zip(texts, prompts, strict=True))
        shape = EchoShape(**told, prompts=echoed, alone=asked.alone)
        asked.max_tokens = 1 if asked.alone else asked.max_tokens
    scored = bool(asked.echo) and asked.tops is not None
    make = partial(jobs_of, grammar=grammar, scored=scored, param="prompt")
    jobs = await serving.aside(make, asked, served, prompts, serving.settings)
    return await complete(request, served, jobs, shape, stream=bool(asked.stream))


def _bare(model: Model, prompt: str | Sequence[int], limit: int) -> list[int]:
    """Return a prompt's token ids without those that the model's tokenizer puts around a text."""
    if isinstance(prompt, str) and prompt and model.tokenizer is not None:
        prompt = model.tokenizer.encode(prompt, add_special_tokens=False, limit=limit)
    return model.encode(prompt)


def _prompts(served: Served, asked: CompletionRequest) -> list[str | list[int]]:
    """Return the prompts. Raises `RequestError`, and `DoesNotFitError` where ids are too many, whatever they are."""
    found = asked.prompts()
    for prompt in found:
        if not isinstance(prompt, str):
            check_room(served, len(prompt))
    return found
