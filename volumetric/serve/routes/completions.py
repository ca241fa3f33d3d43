"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from volumetric.base.errors import GenerationError
from volumetric.serve.answer_grammar import grammar_of
from volumetric.serve.bodies import prompts_of, read_body
from volumetric.serve.completion_answers import TextAnswer
from volumetric.serve.echo import EchoAnswer
from volumetric.serve.event_stream import cancel_on_disconnect
from volumetric.serve.fields.completion_request import CompletionRequest
from volumetric.serve.fill_in_middle import fill_in_middle_of
from volumetric.serve.problem import problem_of
from volumetric.serve.respond import check_room, complete, engine_of, jobs_of, quick_jobs

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.serve.serving import ServedModel, Serving


async def completions(request: Request) -> Response:
    """Continue prompts."""
    serving: Serving = request.app.state.serving
    body = await read_body(request, CompletionRequest)
    served = serving.model(body.model)
    engine_of(served)
    body.check()
    context = served.model.info.context
    whole = body.add_special_tokens is not False
    encode = partial(served.model.encode if whole else partial(_encode_bare, served.model), limit=context)
    if body.suffix:
        filling = fill_in_middle_of(served.name, served.model.tokenizer)
        body.stop_token_ids = [*(body.stop_token_ids or ()), *filling.ends]
        encode = partial(filling.prompt, after=body.suffix, limit=context)
    async with cancel_on_disconnect(request.receive):
        try:
            prompts = None if body.suffix else prompts_of(request)
            if prompts is not None:
                sources = body.prompts()
            else:
                sources = await serving.run_in_thread(_prompts, served, body)
                prompts = [
                    await serving.run_in_thread(encode, one, size=len(one) + len(body.suffix or "")) for one in sources
                ]
        except GenerationError as error:
            raise problem_of(error, param="prompt") from None
        grammar = await grammar_of(serving, served, body)
    fields = served.answer_options(body) | {"sizes": list(map(len, prompts)), "texts": body.texts}
    shape = TextAnswer(**fields)
    if body.echo:
        texts = [one if isinstance(one, str) else served.text(one) for one in sources]
        echoed = list(zip(texts, prompts, strict=True))
        shape = EchoAnswer(**fields, prompts=echoed, alone=body.alone)
        body.max_tokens = 1 if body.alone else body.max_tokens
    scored = bool(body.echo) and body.tops is not None
    make = partial(jobs_of, grammar=grammar, scored=scored, param="prompt")
    quick = quick_jobs(body, sum(map(len, prompts)))
    jobs = await serving.run_in_thread(make, body, served, prompts, serving.settings, quick=quick)
    return await complete(request, served, jobs, shape, stream=bool(body.stream))


def _encode_bare(model: Model, prompt: str | Sequence[int], limit: int) -> list[int]:
    """Return a prompt's token ids without the special tokens that the tokenizer adds around a text."""
    if isinstance(prompt, str) and prompt and model.tokenizer is not None:
        prompt = model.tokenizer.encode(prompt, add_special_tokens=False, limit=limit)
    return model.encode(prompt)


def _prompts(served: ServedModel, body: CompletionRequest) -> list[str | list[int]]:
    """Return the prompts. Raises `RequestError`, and `DoesNotFitError` for too many ids before checking each."""
    prompts = body.prompts()
    for prompt in prompts:
        if not isinstance(prompt, str):
            check_room(served, len(prompt))
    return prompts
