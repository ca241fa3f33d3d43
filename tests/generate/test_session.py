"""Sessions: what is reused, what is held, what is independent."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.devices import device
from tests.generate.letters import deep_letters, letters, recurrent_letters
from volumetric.base.errors import CheckpointError, GenerationError
from volumetric.generate import SamplingParams
from volumetric.generate.saved_session import SEAL, _SessionRecord
from volumetric.layers import MultiHeadAttention


@pytest.fixture
def session():
    with letters().session() as session:
        yield session


def test_a_prompt_is_computed_from_its_first_difference(session):
    assert session.stream("abc", max_tokens=2).run().stats.cached_tokens == 0
    # The state holds a b c d; the e that was drawn last was not fed.
    assert session.tokens == (0, 1, 2, 3)
    again = session.stream("abcdefa", max_tokens=1).run()
    assert (again.text, again.stats.cached_tokens) == ("b", 4)
    changed = session.stream("abh", max_tokens=1).run()
    assert changed.stats.cached_tokens == 2
    assert session.tokens == (0, 1, 7)


def test_the_same_prompt_computes_its_last_token_again(session):
    session.stream("abc", max_tokens=1).run()
    assert session.stream("abc", max_tokens=1).run().stats.cached_tokens == 2


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "top_k": 1}])
def test_leaving_early_keeps_what_was_fed(session, params):
    stream = session.stream("a", **params)
    for _ in range(3):
        next(stream)
    stream.close()
    assert session.tokens == (0, 1, 2)
    assert session.stream("abcde", max_tokens=1).run().stats.cached_tokens == 3


def test_a_new_stream_ends_the_one_before(session):
    first = session.stream("a")
    next(first)
    second = session.stream("c", max_tokens=1)
    assert first.ended
    assert first.generation.finish_reason == "cancelled"
    assert second.run().text == "d"


def test_forks_go_on_independently(session):
    session.stream("abc", max_tokens=1).run()
    fork = session.fork()
    assert fork.stream("abcg", max_tokens=1).run().text == "h"
    assert session.tokens == (0, 1, 2)
    assert fork.tokens == (0, 1, 2, 6)


def test_reset_forgets(session):
    session.stream("abc", max_tokens=1).run()
    session.reset()
    assert session.tokens == ()
    assert session.stream("abc", max_tokens=1).run().stats.cached_tokens == 0


def test_a_closed_session_says_so():
    session = letters().session()
    session.close()
    with pytest.raises(GenerationError, match="closed"):
        session.stream("a").run()


def test_a_refused_prompt_leaves_the_running_stream_alone(session):
    stream = session.stream("a", max_tokens=4)
    next(stream)
    with pytest.raises(GenerationError):
        session.stream("")
    assert "".join(event.text for event in stream) == "cde"


def test_streams_of_a_model_do_not_disturb_each_other():
    model = letters()
    one, two = model.stream("a"), model.stream("d")
    mixed = [next(s).text for s in (one, two, one, two, one)]
    assert mixed == ["b", "e", "c", "f", "d"]


def test_on_end_is_called_once_however_a_stream_ends(session):
    calls = []
    for finish in ("run", "close"):
        stream = session.stream("a", max_tokens=2, on_end=lambda: calls.append(1))
        getattr(stream, finish)()
        stream.close()
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_model_with_fixed_states_goes_back_to_a_copy_or_to_the_start(name):
    """What a recurrent layer holds cannot be cut back; the texts must be those of an empty session all the same."""
    model = recurrent_letters(device(name))
    held = []
    with model.session() as session:
        for prompt in ("abcd", "abcd", "abcdefa", "abcdefb", "abh", "abhc"):
            with model.session() as fresh:
                want = fresh.stream(prompt, max_tokens=5).run().text
            made = session.stream(prompt, max_tokens=5).run()
            assert made.text == want
            held.append(made.stats.cached_tokens)
            assert session.tokens[: len(prompt)] == tuple("abcdefgh".index(letter) for letter in prompt)
    # The copy stands before the last token of a prompt: after abc, abcdef, ab. What was generated is gone on from
    # where the prompt agrees with it.
    assert held[:2] == [0, 3]
    assert held[3] == 6
    assert held[4] == 0


@pytest.mark.parametrize(("source", "target"), [("reference", "cpu"), ("cpu", "reference"), ("cpu", "cpu")])
def test_a_saved_session_goes_on_elsewhere(source, target, tmp_path):
    path = tmp_path / "session"
    with recurrent_letters(device(source)).session() as session:
        session.stream("abcdefabh", max_tokens=3).run()
        session.save(path)
        held = session.tokens
        want = session.stream([*held, 3], max_tokens=5).run()
    with recurrent_letters(device(target)).session(restore=path) as session:
        assert session.tokens == held
        got = session.stream([*held, 3], max_tokens=5).run()
    assert (got.text, got.stats.cached_tokens) == (want.text, len(held))


def test_a_file_that_is_no_session_is_refused(session, tmp_path):
    path = tmp_path / "session"
    session.stream("abc", max_tokens=1).run()
    session.save(path)
    model, data = letters(), path.read_bytes()
    with pytest.raises(CheckpointError, match=r"cannot read .*nowhere"):
        model.session(restore=tmp_path / "nowhere")
    other = SEAL.pack(_SessionRecord(tokens=[1]), [b"".join(SEAL.unpack(data, _SessionRecord)[1:])])
    for bad in (b"", data[:-3], data.replace(b"VOLSTATE", b"VOLSTATU"), other):
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=str(path)) as caught:
            model.session(restore=path)
        assert caught.value.hint
    with pytest.raises(CheckpointError, match="cannot write"):
        session.save(tmp_path / "no" / "directory")
    path.write_bytes(data)
    assert model.session(restore=path).tokens == session.tokens


def test_a_batch_of_sequences_with_fixed_states_says_what_each_says_alone():
    model = recurrent_letters(device("cpu"))
    prompts = ["abc", "abdeh", "h", "abc"]
    alone = [model.session().stream(prompt, max_tokens=5).run().text for prompt in prompts]
    together = model.generate_batch(prompts, max_tokens=5, together=2)
    assert [generation.text for generation in together] == alone


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["reference", "cpu", "gpu"])
def test_a_running_session_can_be_forked_and_saved(name, tmp_path):
    model = deep_letters(device(name), MultiHeadAttention(embed_dim=8, num_heads=2))
    plain = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    alone = model.generate("ab", plain).token_ids
    with model.session() as session:
        stream = session.stream("ab", plain)
        begun = [next(stream).token_id for _ in range(4)]
        held = (0, 1, *alone[:3])
        with session.fork() as fork:
            assert fork.tokens == session.tokens == held
            assert fork.stream([*held, alone[3]], replace(plain, max_tokens=4)).run().token_ids == alone[4:]
        session.save(tmp_path / "session")
        assert (*begun, *(event.token_id for event in stream)) == alone
        assert session.tokens == (0, 1, *alone[:-1])
    with model.session(restore=tmp_path / "session") as again:
        assert again.tokens == held


def test_python_may_exit_in_the_middle_of_a_stream():
    program = (
        "from tests.devices import device\nfrom tests.generate.letters import recurrent_letters\n"
        "stream = recurrent_letters(device('cpu')).stream('a', max_tokens=9)\nnext(stream)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert (done.returncode, done.stderr) == (0, "")
