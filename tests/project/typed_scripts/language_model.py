"""Use of a language model: generate, stream, chat, sessions, encoders."""

from __future__ import annotations

import sys

import volumetric


def main(name: str) -> None:
    model = volumetric.load(name, device="cpu", dtype="int8:g32")
    answer = model.generate("The capital of France is", max_tokens=8, temperature=0.0)
    print(answer.text, answer.stats.generation_tps, answer.finish_reason)
    for event in model.stream("Once", max_tokens=8, seed=1):
        print(event.text, event.token_id, end="")
    messages = [{"role": "user", "content": "What is a tree?"}]
    print(model.chat(messages, max_tokens=16).text)
    with model.session() as session:
        first = session.stream("A tree is", max_tokens=4).run()
        print(first.text, len(session.tokens))
    rows = model.logits(model.encode("a text"))
    best = int(rows[-1].argmax())
    texts = [one.text for one in model.generate_batch(["a", "b"], max_tokens=4)]
    print(best, texts, model.info.dtype, model.info.context)


def embed(name: str) -> float:
    vectors = volumetric.load(name).embed(["a text", "another"])
    return float((vectors[0] * vectors[1]).sum())


if __name__ == "__main__":
    main(sys.argv[1])
