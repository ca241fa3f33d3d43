"""Streams: text, stops, finish reasons, cancelling."""

from __future__ import annotations

import numpy as np
import pytest

from tests.generate.letters import END, LETTERS, letters, next_letter_logits
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate import SamplingParams
from volumetric.loaders.generation_config import GenerationDefaults


@pytest.fixture
def model():
    return letters()


def test_length_ends_at_max_tokens(model):
    made = model.generate("a", max_tokens=3)
    assert (made.text, made.token_ids, made.finish_reason) == ("bcd", (1, 2, 3), "length")
    assert str(made) == "bcd"
    assert made.seed is None


def test_end_of_text_is_an_id_and_no_text(model):
    made = model.generate("f")
    assert (made.text, made.finish_reason) == ("gh", "stop")
    assert made.token_ids == (6, 7, END)


def test_ignored_end_of_text_goes_on(model):
    assert model.generate("g", max_tokens=4, ignore_eos=True).text == "h.ab"


def test_stop_ids_join_the_end_of_text(model):
    made = model.generate("a", stop_ids=[3])
    assert (made.text, made.token_ids, made.finish_reason) == ("bc", (1, 2, 3), "stop")
    assert model.generate("a", stop_ids=[3], ignore_eos=True).finish_reason == "stop"


@pytest.mark.parametrize(("stop", "text"), [("d", "bc"), (["xx", "de"], "bc"), (("ef", "d"), "bc"), ("hz", "bcdefgh")])
def test_stop_texts_cut_the_text(model, stop, text):
    made = model.generate("a", stop=stop)
    assert (made.text, made.finish_reason) == (text, "stop")


def test_a_held_back_beginning_of_a_stop_text_comes_at_the_end(model):
    events = list(model.stream("a", max_tokens=3, stop=["cdx"]))
    assert [event.text for event in events] == ["b", "", "cd"]


def test_only_the_last_event_tells_why_and_how_fast(model):
    events = list(model.stream("a", max_tokens=3))
    assert [event.index for event in events] == [0, 1, 2]
    assert [event.finish_reason for event in events] == [None, None, "length"]
    assert [event.stats is None for event in events] == [True, True, False]
    stats = events[-1].stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (1, 0, 3)
    assert stats.prompt_tps > 0
    assert stats.generation_tps > 0
    assert stats.first_token_seconds >= stats.prompt_seconds
    assert stats.peak_bytes > 10_000_000
    assert stats.device_bytes == 4 * len(LETTERS) ** 2


@pytest.mark.parametrize("slow", [{"logprobs": 0}, {"logit_bias": {0: 0.0}}, {"presence_penalty": 1e-9}])
def test_the_fast_greedy_path_and_the_sampler_agree(model, slow):
    assert model.generate("c", **slow).token_ids == model.generate("c").token_ids


def test_a_seed_repeats_whatever_ran_before(model):
    drawn = {"temperature": 2.0, "max_tokens": 20, "ignore_eos": True}
    first = model.generate("a", seed=5, **drawn)
    model.generate("abcabc", seed=1, **drawn)
    assert model.generate("a", seed=5, **drawn).token_ids == first.token_ids
    assert model.generate("a", seed=6, **drawn).token_ids != first.token_ids
    assert first.seed == 5
    unseeded = model.generate("a", **drawn)
    assert model.generate("a", seed=unseeded.seed, **drawn).token_ids == unseeded.token_ids


def test_logprobs_are_reported(model):
    made = model.generate("a", max_tokens=2, logprobs=2)
    p = np.exp([4.0, 2.0]) / np.exp(next_letter_logits()[0]).sum()
    assert made.logprobs == pytest.approx([np.log(p[0])] * 2)
    assert [i for i, _ in made.top_logprobs[0]] == [1, 2]
    assert model.generate("a", max_tokens=1).logprobs is None


def test_cancel_ends_before_the_next_token(model):
    stream = model.stream("a")
    seen = [next(stream).text, next(stream).text]
    stream.cancel()
    assert list(stream) == []
    assert stream.ended
    made = stream.generation
    assert (seen, made.text, made.finish_reason) == (["b", "c"], "bc", "cancelled")


def test_closing_keeps_what_was_made_and_what_was_held_back(model):
    stream = model.stream("a", stop=["dx"])
    for _ in range(3):
        next(stream)
    stream.close()
    stream.close()
    assert stream.generation.text == "bcd"
    assert stream.generation.finish_reason == "cancelled"


def test_a_stream_closed_before_its_start_made_nothing(model):
    stream = model.stream("a")
    stream.close()
    assert list(stream) == []
    assert stream.generation.token_ids == ()


def test_the_context_ends_a_generation_by_length():
    model = letters(context=5)
    made = model.generate("ab", ignore_eos=True)
    # Two tokens of the prompt and three fed ones fill the context; the last token drawn is not fed.
    assert (made.text, made.finish_reason) == ("cdef", "length")
    assert model.generate("abcde").token_ids == (5,)


def test_a_prompt_beyond_the_context_says_what_to_do():
    model = letters(context=4, context_length=64)
    with pytest.raises(GenerationError, match="5 tokens, the context holds 4") as caught:
        model.generate("abcde")
    assert "context=5" in str(caught.value.hint)
    with pytest.raises(GenerationError) as caught:
        model.generate([0] * 65)
    assert "at most 64 tokens" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "empty"),
        ([], "empty"),
        ([99], "99"),
        ([-1], "-1"),
        ([0.5], "float"),
        ([True], "bool"),
        ([{"role": "user", "content": ""}], "empty"),
    ],
)
def test_impossible_prompts_are_refused(model, prompt, message):
    with pytest.raises(GenerationError, match=message):
        model.generate(prompt)


def test_a_model_without_tokenizer_takes_ids():
    model = letters(text=False)
    made = model.generate(np.array([0, 1]), max_tokens=2)
    assert (made.text, made.token_ids) == ("", (2, 3))
    with pytest.raises(GenerationError, match="no tokenizer"):
        model.generate("a")
    with pytest.raises(GenerationError, match="no chat template"):
        model.chat([{"role": "user", "content": "a"}])


def test_chat_renders_the_template(model):
    messages = [{"role": "user", "content": "ab"}]
    assert model.chat(messages, max_tokens=2).text == "cd"
    assert model.chat(messages, max_tokens=2, template_args={"suffix": "e"}).text == "fg"


def test_the_generation_config_of_the_model_counts():
    sampled = letters(generation=GenerationDefaults(eos_ids=(END,), do_sample=True, temperature=0.5, top_k=2))
    assert sampled.sampling().temperature == 0.5
    assert sampled.generate("a", max_tokens=1).seed is not None
    assert sampled.generate("a", max_tokens=1, temperature=0).seed is None


def test_complete_parameters_replace_the_defaults_of_the_model():
    sampled = letters(generation=GenerationDefaults(do_sample=True, temperature=0.5, top_k=2))
    params = sampled.sampling(SamplingParams(max_tokens=7), top_p=0.5)
    assert params == SamplingParams(max_tokens=7, top_p=0.5)


def test_unknown_sampling_parameters_are_refused(model):
    with pytest.raises(SpecError, match="max_new_tokens"):
        model.generate("a", max_new_tokens=3)


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}])
def test_logits_that_are_no_numbers_are_an_error_and_leave_the_model_usable(params):
    table = next_letter_logits()
    table[3, 2] = np.nan
    model = letters(table)
    with pytest.raises(GenerationError, match="NaN"):
        model.generate("abcd", **params)
    assert model.generate("a", max_tokens=2).text == "bc"
