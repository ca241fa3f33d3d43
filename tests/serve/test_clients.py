"""The client of OpenAI against a server: chats, completions, streams, embeddings; and what it raises."""

from __future__ import annotations

import numpy as np
import openai
import pytest

from tests.generate.letters import letters, next_letter_logits, recurrent_letters
from tests.generate.test_encoding import TINY
from tests.serve.servers import Address, running, slow_letters
from volumetric import load
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Limits

MESSAGES = [{"role": "user", "content": "ab"}]


@pytest.fixture(scope="module")
def server():
    models = {
        "letters": letters(),
        "random": recurrent_letters(ReferenceDevice()),
        "encoder": load(TINY / "sentences_mean", device="reference"),
    }
    with running(models) as address:
        yield address


@pytest.fixture(scope="module")
def client(server: Address):
    with server.client() as client:
        yield client


@pytest.mark.thorough
def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["letters", "random", "encoder"]
    assert client.models.retrieve("letters").max_model_len == 32
    with pytest.raises(openai.NotFoundError, match="the models are letters, random, encoder"):
        client.models.retrieve("words")


@pytest.mark.thorough
def test_chat(client):
    answer = client.chat.completions.create(model="letters", messages=MESSAGES)
    assert answer.choices[0].message.content == "cdefgh"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (2, 7, 9)
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"


def test_the_answer_fills_the_context_unless_it_is_bounded(client):
    for bound in ({"max_tokens": 3}, {"max_completion_tokens": 3}):
        answer = client.chat.completions.create(model="letters", messages=MESSAGES, **bound)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("cde", "length")
    endless = client.completions.create(model="letters", prompt="ab", extra_body={"ignore_eos": True})
    assert endless.usage.total_tokens == 33  # the last token needs no place
    assert endless.choices[0].finish_reason == "length"


def test_a_stream_says_the_same_in_pieces(client):
    stream = client.chat.completions.create(
        model="letters", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, logprobs=True
    )
    *chunks, last = list(stream)
    assert last.choices == []
    assert last.usage.completion_tokens == 7
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "cdefgh"
    told = [one.token for chunk in chunks if chunk.choices[0].logprobs for one in chunk.choices[0].logprobs.content]
    assert told == list("cdefgh.")
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert {chunk.usage for chunk in chunks} == {None}


def test_texts_of_several_prompts_come_in_order(client):
    answer = client.completions.create(model="letters", prompt=["a", "g"], max_tokens=2, n=2)
    assert [(one.index, one.text) for one in answer.choices] == [(0, "bc"), (1, "bc"), (2, "h"), (3, "h")]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 8)
    for prompt in ([0, 1], [[0, 1]]):
        assert client.completions.create(model="letters", prompt=prompt, max_tokens=1).choices[0].text == "c"
    pieces = client.completions.create(model="letters", prompt=["a", "c"], max_tokens=3, stream=True)
    texts = ["", ""]
    for piece in pieces:
        texts[piece.choices[0].index] += piece.choices[0].text
    assert texts == ["bcd", "def"]


def test_log_probabilities(client):
    chat = client.chat.completions.create(
        model="letters", messages=MESSAGES, max_tokens=1, logprobs=True, top_logprobs=2
    )
    (token,) = chat.choices[0].logprobs.content
    row = next_letter_logits()[1]
    expected = row - np.log(np.exp(row).sum())
    assert (token.token, token.bytes) == ("c", [ord("c")])
    assert token.logprob == pytest.approx(expected[2], rel=1e-5)
    assert [one.token for one in token.top_logprobs] == ["c", "d"]
    text = client.completions.create(model="letters", prompt="ab", max_tokens=1, logprobs=2).choices[0].logprobs
    assert text.tokens == ["c"]
    assert list(text.top_logprobs[0]) == ["c", "d"]
    assert text.token_logprobs[0] == pytest.approx(expected[2], rel=1e-5)


def test_a_seed_gives_the_same_text_and_the_next_ones(client):
    def texts(seed: int, n: int) -> list[str]:
        answer = client.completions.create(
            model="random", prompt="ab", n=n, seed=seed, temperature=1.5, max_tokens=12, extra_body={"ignore_eos": True}
        )
        return [choice.text for choice in answer.choices]

    assert texts(3, 3) == texts(3, 3)
    assert texts(4, 1) == texts(3, 3)[1:2]
    assert len(set(texts(3, 3))) == 3


def test_sampling_is_asked_for_by_openai_s_names_and_by_others(client):
    ask = {"model": "letters", "prompt": "ab", "max_tokens": 4}
    assert client.completions.create(**ask, stop=["e"]).choices[0].text == "cd"
    assert client.completions.create(**ask, logit_bias={"2": -100}).choices[0].text == "defg"
    assert client.completions.create(**ask, temperature=1, extra_body={"top_k": 1}).choices[0].text == "cdef"
    for other in ({"repeat_penalty": 1.0}, {"n_predict": 4}, {"user": "somebody"}):
        rest = {name: value for name, value in ask.items() if "n_predict" not in other or name != "max_tokens"}
        assert client.completions.create(**rest, extra_body=other).choices[0].text == "cdef"


def test_the_last_message_of_the_assistant_goes_on(client):
    messages = [*MESSAGES, {"role": "assistant", "content": "cd"}]
    answer = client.chat.completions.create(
        model="letters", messages=messages, extra_body={"continue_final_message": True}
    )
    assert answer.choices[0].message.content == "efgh"


def test_a_predicted_answer_is_checked_in_few_calls(client):
    plain = client.chat.completions.create(model="letters", messages=MESSAGES)
    for told, accepted in (("cdefgh", True), ([{"type": "text", "text": "cd"}], True), ("hhh", False)):
        answer = client.chat.completions.create(
            model="letters", messages=MESSAGES, prediction={"type": "content", "content": told}
        )
        assert answer.choices[0].message.content == plain.choices[0].message.content
        details = answer.usage.completion_tokens_details
        assert (details.accepted_prediction_tokens > 0) == accepted
        assert details.rejected_prediction_tokens >= 0


@pytest.mark.thorough
def test_a_server_with_a_draft_says_the_same(client):
    ask = {"prompt": "abcd", "max_tokens": 24, "extra_body": {"ignore_eos": True}}
    models = {"letters": letters(), "random": recurrent_letters(ReferenceDevice())}
    drafts = {"letters": letters, "random": "lookup"}
    with running(models, drafts=drafts) as address, address.client() as drafting:
        for name in models:
            for sampling in ({}, {"temperature": 1.2, "seed": 5, "n": 2}):
                plain = client.completions.create(model=name, **ask, **sampling)
                answer = drafting.completions.create(model=name, **ask, **sampling)
                assert [one.text for one in answer.choices] == [one.text for one in plain.choices]
                assert plain.usage.completion_tokens_details.accepted_prediction_tokens == 0
        engine = address.server.serving.models["letters"].engine
        assert engine is not None
        assert engine.scheduler.stats.accepted_tokens > 0
        assert drafting.models.retrieve("letters").model_dump()["meta"]["draft"] == "letters"


def test_embeddings_are_those_of_the_library(client):
    texts = ["the cat", "a"]
    expected = load(TINY / "sentences_mean", device="reference").embed(texts)
    for asked in ({}, {"encoding_format": "float"}):  # the client asks for base64 unless told, and decodes it
        answer = client.embeddings.create(model="encoder", input=texts, **asked)
        np.testing.assert_allclose([one.embedding for one in answer.data], expected, rtol=1e-6)
    assert answer.usage.prompt_tokens == 4 + 3
    own = client.embeddings.create(model="encoder", input=texts, dimensions=expected.shape[1])
    assert len(own.data[0].embedding) == expected.shape[1]
    with pytest.raises(openai.BadRequestError, match="own width"):
        client.embeddings.create(model="encoder", input=texts, dimensions=2)


def test_texts_to_embed_are_cut_only_where_that_is_asked_for(client):
    texts = ["a", "cat " * 50]
    with pytest.raises(
        openai.BadRequestError, match=r"input\[1\] has 52 tokens, the model accepts at most 24"
    ) as caught:
        client.embeddings.create(model="encoder", input=texts)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    library = load(TINY / "sentences_mean", device="reference")
    for cut, length in ((-1, 24), (8, 8)):
        answer = client.embeddings.create(model="encoder", input=texts, extra_body={"truncate_prompt_tokens": cut})
        expected = library.embed(texts, max_length=length)
        np.testing.assert_allclose([one.embedding for one in answer.data], expected, rtol=1e-6)
        assert answer.usage.prompt_tokens == 3 + length
    for cut in (0, 41):
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="encoder", input=texts, extra_body={"truncate_prompt_tokens": cut})


@pytest.mark.parametrize(
    ("asked", "param", "message"),
    [
        ({"temperatur": 1}, "temperatur", "did you mean 'temperature'"),
        ({"pictures": {}}, "pictures", "does not support it"),
        ({"audio": {}}, "audio", "text only"),
        ({"temperature": "hot"}, "temperature", "float"),
        ({"temperature": -1}, "temperature", "0 to 1,000,000"),
        ({"max_tokens": 0}, "max_tokens", "1 or more"),
        ({"n": 9}, "n", "from 1 to 8"),
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"top_logprobs": 2}, "top_logprobs", "requires logprobs"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "differ"),
        ({"store": "long"}, "store", "nothing is stored"),
        ({"stream_options": {}}, "stream_options", "requires stream"),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role", "robot"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "image_url"),
        ({"messages": [{"role": "user", "content": "a", "mood": 1}]}, "messages[0].mood", "mood"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "not a token id"),
    ],
)
def test_what_is_not_honoured_is_named(client, asked, param, message):
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.post("/chat/completions", cast_to=object, body={"model": "letters", "messages": MESSAGES} | asked)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(client):
    with pytest.raises(openai.BadRequestError, match=r"40 tokens.* 32") as caught:
        client.completions.create(model="letters", prompt="a" * 40)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")


def test_an_encoder_makes_no_text_and_a_generator_no_embeddings(client):
    with pytest.raises(openai.BadRequestError, match="computes embeddings and does not generate text"):
        client.completions.create(model="encoder", prompt="a")
    with pytest.raises(openai.BadRequestError, match="serve an encoder"):
        client.embeddings.create(model="letters", input="a")


@pytest.mark.thorough
def test_a_key_is_asked_for_where_there_is_one():
    with running({"letters": letters()}, api_key="open sesame") as address:
        with address.client("wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
        with address.client("open sesame") as client:
            assert [model.id for model in client.models.list()] == ["letters"]


@pytest.mark.thorough
def test_a_full_queue_refuses_with_a_time_to_come_again():
    limits = Limits(slots=1, queue=0)
    with (
        running({"random": slow_letters()}, limits=limits) as address,
        address.client() as client,
    ):
        ask = {"model": "random", "prompt": "ab", "temperature": 1, "extra_body": {"ignore_eos": True}}
        with client.completions.create(**ask, stream=True) as stream:
            next(iter(stream))
            with pytest.raises(openai.RateLimitError) as caught:
                client.completions.create(**ask)
        assert caught.value.code == "queue_full"
        assert 1 <= int(caught.value.response.headers["retry-after"]) <= 30
