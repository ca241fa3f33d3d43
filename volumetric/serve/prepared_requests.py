"""Requests prepared by the processes for HTTP: bodies parsed, conversations rendered and texts tokenised.

The server shares what that takes of its models: tokenizers and chat templates. A worker prepares what it can, and
passes on all else as it came: a request that it cannot prepare is parsed and refused by the server, in its words.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from volumetric.loaders.chat_contents import MessageContents
    from volumetric.loaders.chat_template import ChatTemplate
    from volumetric.loaders.tokenizer import Tokenizer
    from volumetric.serve.fields.chat_request import ChatRequest
    from volumetric.serve.fields.completion_request import CompletionRequest
    from volumetric.serve.serving import ServedModel, ServerSettings

MOST: Final = 2**18
"""Bytes of a body above which a worker leaves it to the server, which has threads for long ones."""
CHAT: Final = "/v1/chat/completions"
TEXT: Final = "/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptModel:
    """What a model's prompts are made with."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedModels:
    """What workers know of the server.

    Attributes
    ----------
    version : number of these models; ids of other ones are not used
    models : models that generate text, by name
    first : name of the model of requests that name none
    most : most bytes of a body
    lenient, parse_special : see `volumetric.serve.serving.ServerSettings`
    """

    version: int
    models: Mapping[str, PromptModel]
    first: str
    most: int
    lenient: bool
    parse_special: bool


class PreparedRequest(msgspec.Struct, array_like=True):
    """A request whose body is parsed.

    Attributes
    ----------
    body : the body's type in MessagePack
    version : of the models that made `prompts`
    prompts : token ids of each prompt; None if the server makes them
    """

    body: msgspec.Raw
    version: int = 0
    prompts: list[list[int]] | None = None


def packed_models(version: int, served: Mapping[str, ServedModel], settings: ServerSettings) -> bytes:
    """Return `SharedModels` for workers; models without a tokenizer that can be passed on are left out."""
    models: dict[str, PromptModel] = {}
    for name, one in served.items():
        loaded = one.model.loaded
        if one.engine is None or loaded.tokenizer is None:
            continue
        model = PromptModel(tokenizer=loaded.tokenizer, template=loaded.chat_template, context=one.model.info.context)
        try:
            pickle.dumps(model)
        except Exception:  # a tokenizer or a template of another kind: the server makes its prompts
            continue
        models[name] = model
    shared = SharedModels(
        version=version,
        models=models,
        first=next(iter(served), ""),
        most=min(MOST, settings.max_body),
        lenient=settings.lenient,
        parse_special=settings.parse_special,
    )
    return pickle.dumps(shared)


class Preparer:
    """Prepares requests in a worker. The content comes from the server that started it."""

    def __init__(self, content: bytes) -> None:
        from volumetric.loaders.chat_contents import MessageContents
        from volumetric.serve.fields.chat_request import ChatRequest
        from volumetric.serve.fields.completion_request import CompletionRequest

        self._shared: SharedModels = pickle.loads(content)
        self._contents = {
            name: MessageContents(model.tokenizer, model.template) for name, model in self._shared.models.items()
        }
        kinds: dict[str, tuple[type[Any], Callable[[Any, str], list[list[int]] | None]]] = {
            CHAT: (ChatRequest, self._chat),
            TEXT: (CompletionRequest, self._texts),
        }
        self._kinds = kinds | {path.removeprefix("/v1"): kind for path, kind in kinds.items()}

    def takes(self, path: str, body: bytes) -> bool:
        """Whether a worker prepares such a request."""
        return path in self._kinds and 0 < len(body) <= self._shared.most

    def prepare(self, path: str, body: bytes) -> bytes | None:
        """Return a `PreparedRequest` in MessagePack; None if the server must see the body itself."""
        from volumetric.serve.bodies import decode_body

        kind, prompts_of = self._kinds[path]
        dropped: list[str] = []
        try:
            fields = decode_body(body, kind, lenient=self._shared.lenient, dropped=dropped)
            packed = msgspec.Raw(msgspec.msgpack.encode(fields))
        except Exception:  # the server finds the same, and says so
            return None
        if dropped:  # the server logs it with the request's id
            return None
        try:
            prompts = prompts_of(fields, fields.model or self._shared.first)
        except Exception:
            prompts = None
        return msgspec.msgpack.encode(PreparedRequest(packed, self._shared.version, prompts))

    def _chat(self, body: ChatRequest, name: str) -> list[list[int]] | None:
        from volumetric.serve.routes.chat import rendered_ids, template_args

        model, contents = self._model(name)
        if model is None or contents is None or model.template is None:
            return None
        if body.tools or body.tool_choice is not None or any(message.tool_calls for message in body.messages):
            return None
        args, messages = template_args(body), body.conversation()
        if not self._shared.parse_special:
            args, messages = contents.data(args), contents.messages(messages)
        return [rendered_ids(contents, messages, args, model.context, going_on=bool(body.continue_final_message))]

    def _texts(self, body: CompletionRequest, name: str) -> list[list[int]] | None:
        model, _ = self._model(name)
        if model is None or body.suffix:
            return None
        special = body.add_special_tokens is not False
        texts = [one for one in body.prompts() if isinstance(one, str) and one]
        if len(texts) != len(body.prompts()):
            return None
        return [model.tokenizer.encode(one, add_special_tokens=special, limit=model.context) for one in texts]

    def _model(self, name: str) -> tuple[PromptModel | None, MessageContents | None]:
        name = self._shared.first if name == "default" else name
        return self._shared.models.get(name), self._contents.get(name)
