"""Stop texts in a stream that may be cut anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from volumetric.generate.stop_texts import StopMatcher

letters = st.text("ab\n", max_size=12)


def feed(stops, pieces):
    matcher, shown = StopMatcher(stops), []
    for piece in pieces:
        text, hit = matcher.push(piece)
        shown.append(text)
        if hit:
            return "".join(shown), True, shown
    shown.append(matcher.flush())
    return "".join(shown), False, shown


@given(st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3), st.lists(letters, max_size=8))
def test_the_cut_of_the_stream_does_not_matter(stops, pieces):
    whole = "".join(pieces)
    at = [i for stop in stops if (i := whole.find(stop)) >= 0]
    text, hit, _ = feed(stops, pieces)
    assert hit == bool(at)
    if not hit:
        assert text == whole
    elif all(len(piece) == 1 for piece in pieces):
        # Letter by letter, the stop text that is complete first wins, and all before it has been shown.
        assert whole.startswith(text)
        assert any(whole[len(text) :].startswith(stop) for stop in stops)


@given(st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3), st.lists(letters, max_size=8))
def test_the_first_appearance_of_any_stop_text_wins(stops, pieces):
    """Among those that are complete when a piece has come, the one that begins first; whichever is longer."""
    text, hit, _ = feed(stops, pieces)
    so_far = ""
    for piece in pieces:
        so_far += piece
        at = [i for stop in stops if (i := so_far.find(stop)) >= 0]
        if at:
            assert (text, hit) == (so_far[: min(at)], True)
            return
    assert (text, hit) == (so_far, False)


def test_a_long_stop_text_that_begins_first_wins_over_a_short_one():
    assert StopMatcher(["d", "bcd"]).push("abcde") == ("a", True)
    assert StopMatcher(["bcd", "d"]).push("abcde") == ("a", True)
    assert StopMatcher(["bcd", "c"]).push("abcde") == ("a", True)


@given(st.text("ab", min_size=1, max_size=5), st.lists(letters, max_size=8))
def test_one_stop_text_cuts_where_it_first_appears(stop, pieces):
    whole = "".join(pieces)
    text, hit, _ = feed([stop], pieces)
    assert (text, hit) == (whole.partition(stop)[0], stop in whole)


def test_only_possible_beginnings_are_held_back():
    matcher = StopMatcher(["</s>"])
    assert matcher.push("hello <") == ("hello ", False)
    assert matcher.push("b") == ("<b", False)
    assert matcher.push("x</") == ("x", False)
    assert matcher.push("s>tail") == ("", True)


def test_what_was_held_back_is_shown_once():
    matcher = StopMatcher(["</s>"])
    assert matcher.push("a</s") == ("a", False)
    assert matcher.flush() == "</s"
    assert matcher.flush() == ""
    assert matcher.push(">") == (">", False)


def test_without_stop_texts_nothing_is_held():
    assert StopMatcher([]).push("anything") == ("anything", False)
