"""Items of responses: what a stream tells piece by piece is what they hold in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from volumetric.serve.responses.items import ResponseItems
from volumetric.serve.tools.call_reader import AnswerParts


@given(st.lists(st.tuples(st.sampled_from(["thought", "said"]), st.text("ab ", min_size=1, max_size=3)), max_size=6))
def test_items_hold_what_their_events_told(pieces: list[tuple[str, str]]) -> None:
    output, events = ResponseItems(), []
    for kind, text in pieces:
        events += output.push(AnswerParts(text if kind == "thought" else "", text if kind == "said" else "", []))
    events += output.end("completed")
    whole = [item["content"][0]["text"] for item in output.items]
    told = [event["text"] for event in events if event["type"].endswith("_text.done")]
    deltas = "".join(event["delta"] for event in events if event["type"].endswith("_text.delta"))
    assert whole == told
    assert "".join(whole) == deltas
    assert "".join(text for _, text in pieces if text.strip()).replace(" ", "") == deltas.replace(" ", "")
