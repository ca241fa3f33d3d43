"""The page at ``/`` in a real browser: it sends, streams, stops, shows speed, remembers, and tells what was refused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.generate.letters import letters
from tests.gpu.browser import find_or_skip
from tests.serve.chromium import SHIFT, Page, chromium
from tests.serve.servers import running, slowed

KEY = "open sesame"
SLOW = "slow-letters-with-a-name-that-is-longer-than-a-narrow-page-is-wide"
SAID = "[...document.querySelectorAll('#talk > .{}')].map(box => box.textContent)"
AT = "document.querySelector('{}').getBoundingClientRect()"
IDLE = "document.querySelector('#stop').hidden"


@pytest.fixture(scope="module")
def browser():
    find_or_skip()
    models = {"letters": letters(), SLOW: slowed(letters(), 0.2)}
    with running(models, api_key=KEY) as address, chromium() as page:
        page.call("Page.enable")
        page.open(f"{address.url}/")
        yield page


def set_to(page: Page, **values: str) -> None:
    for name, value in values.items():
        box = f"document.getElementById({name!r})"
        page.value(f"({box}.value = {value!r}, {box}.dispatchEvent(new Event('change')), 0)")


@pytest.fixture
def page(browser: Page):
    set_to(browser, key=KEY, temperature="", top_p="", tokens="", seed="", system="")
    browser.wait("document.querySelector('#model').options.length === 2")
    set_to(browser, model="letters")
    browser.value("document.querySelector('#more').open = false")
    browser.click("#new")
    return browser


@pytest.mark.thorough
def test_a_key_is_asked_for(browser):
    browser.wait("document.querySelector('.error') !== null")
    assert "API key is missing or wrong" in browser.value("document.querySelector('.error').textContent")
    assert browser.value("document.querySelector('#more').open")
    set_to(browser, key=KEY)
    browser.wait("document.querySelector('#model').options.length === 2")
    assert browser.value("document.querySelector('.error')") is None
    browser.press("Escape")
    assert not browser.value("document.querySelector('#more').open")


@pytest.mark.thorough
def test_messages_are_sent_and_the_whole_talk_with_them(page):
    page.value(
        "(window.sent = [], window.real ??= fetch, fetch = (to, more) => (sent.push(more.body), real(to, more)), 0)"
    )
    assert page.value("document.activeElement.id") == "text"
    set_to(page, system="h")
    page.write("ab")
    page.press("Enter")
    page.wait(f"{IDLE} && {SAID.format('assistant')}.length === 1")
    assert page.value(SAID.format("assistant")) == ["cdefgh"]
    assert " tokens/s" in page.value("document.querySelector('#speed').textContent")
    assert page.value("document.activeElement.id") == "text"
    page.write("a")
    page.press("Enter", SHIFT)
    assert page.value("document.querySelector('#text').value") == "a\n"
    page.press("Enter")
    page.wait(f"{IDLE} && {SAID.format('assistant')}.length === 2")
    assert page.value(SAID.format("user")) == ["ab", "a"]
    first, second = (json.loads(body) for body in page.value("sent"))
    assert first["messages"] == [{"role": "system", "content": "h"}, {"role": "user", "content": "ab"}]
    told = [{"role": "assistant", "content": "cdefgh"}, {"role": "user", "content": "a"}]
    assert second["messages"] == [*first["messages"], *told]
    page.value("(fetch = real, setTimeout(() => location.reload()), 0)")  # the talk stays with its tab
    page.wait("window.sent === undefined && document.querySelector('.error') !== null")  # the key does not
    assert page.value(SAID.format("user")) == ["ab", "a"]
    assert page.value(SAID.format("assistant")) == ["cdefgh", "bcdefgh"]


@pytest.mark.thorough
def test_an_answer_is_had_again_copied_and_its_message_edited(page):
    page.value(
        "(window.sent = [], window.real ??= fetch, fetch = (to, more) => (sent.push(more.body), real(to, more)), 0)"
    )
    set_to(page, seed="5", top_p="0.5", temperature="0.1")
    page.write("ab")
    page.press("Enter")
    page.wait(f"{IDLE} && {SAID.format('assistant')}.length === 1")
    assert re.search(r"context: \d+ of [\d,]+$", page.value("document.querySelector('#speed').textContent"))
    page.click("#talk .last")
    page.wait(f"sent.length === 2 && {IDLE}")
    first, again = (json.loads(body) for body in page.value("sent"))
    assert first == again
    assert (first["seed"], first["top_p"]) == (5, 0.5)
    assert page.value(SAID.format("assistant")) == ["cdefgh"]
    page.click("#talk .actions button")
    page.wait("document.querySelector('#talk .actions button').textContent === 'Copied'")
    page.value("document.querySelector('#text').focus()")
    page.paste()
    assert page.value("document.querySelector('#text').value") == "cdefgh"
    page.click("#talk .last:last-child")
    assert page.value("document.querySelector('#text').value") == "ab\ncdefgh"
    assert page.value("document.activeElement.id") == "text"
    assert page.value(SAID.format("user")) == page.value(SAID.format("assistant")) == []
    assert page.value("JSON.parse(sessionStorage.getItem('talk'))") == []
    page.value("(fetch = real, document.querySelector('#text').value = '', 0)")


@pytest.mark.parametrize("how", ["Escape", "#stop"])
def test_an_answer_streams_and_stops(page, how):
    set_to(page, model=SLOW, temperature="0.1")
    page.write("a")
    page.press("Enter")
    answer = f"({SAID.format('assistant')}[0] ?? '')"
    page.wait(f"{answer}.length >= 2")
    assert not page.value(IDLE)
    assert page.value("document.querySelector('.assistant').getAttribute('aria-busy')") == "true"
    if how == "Escape":
        page.press(how)
    else:
        page.click(how)
    page.wait(IDLE)
    text = page.value(answer)
    assert "bcdefgh".startswith(text)
    assert 2 <= len(text) < 7
    assert page.value("document.querySelector('.error')?.textContent ?? null") is None


def test_what_is_refused_is_told_and_can_be_sent_again(page):
    set_to(page, tokens="0")
    page.write("ab")
    page.press("Enter")
    page.wait("document.querySelector('.error') !== null")
    assert "1 or more" in page.value("document.querySelector('.error').textContent")
    assert page.value("document.querySelector('.error').getAttribute('role')") == "alert"
    assert page.value("document.querySelector('#text').value") == "ab"
    assert page.value(SAID.format("user")) == []
    set_to(page, tokens="2")
    page.press("Enter")
    page.wait(f"{IDLE} && {SAID.format('assistant')}.length === 1")
    assert page.value(SAID.format("assistant")) == ["cd"]
    assert page.value("document.querySelector('.error')") is None


@pytest.mark.thorough
def test_thoughts_stand_apart_from_the_answer(page):
    deltas = [{"reasoning_content": "Let me "}, {"reasoning_content": "see."}, {"content": "Yes"}, {"content": "."}]
    pieces = [f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n" for delta in deltas]
    stream = json.dumps("".join(pieces) + "data: [DONE]\n\n")
    page.value(f"(window.real ??= fetch, fetch = async () => new Response({stream}), 0)")
    page.write("ab")
    page.press("Enter")
    page.wait(f"{IDLE} && {SAID.format('assistant')}.length === 1")
    assert page.value(SAID.format("assistant")) == ["Yes."]
    assert page.value("document.querySelector('.thought').lastChild.textContent") == "Let me see."
    assert not page.value("document.querySelector('.thought').open")
    assert page.value("JSON.parse(sessionStorage.getItem('talk')).at(-1).content") == "Yes."
    page.value("(fetch = real, 0)")


@pytest.mark.thorough
def test_everything_has_a_name_and_fits(page):
    page.call("Accessibility.enable")
    page.value("document.querySelector('#more').open = true")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    asked = ("button", "textbox", "combobox", "spinbutton", "DisclosureTriangle", "log")
    found = [node for node in nodes if node["role"]["value"] in asked]
    assert len(found) >= 9
    assert all(node["name"]["value"] for node in found), found
    for width in (320, 1280):
        folder = os.environ.get("VOLUMETRIC_PICTURES")
        for scheme in ("light", "dark"):
            picture = page.picture(width, 800, scheme)
            if folder:
                Path(folder, f"page-{width}-{scheme}.png").write_bytes(picture)
        for box in ("#model", "#new", ".settings", "#send"):
            left, right = page.value(f"(({{left, right}}) => [left, right])({AT.format(box)})")
            assert 0 <= left < right <= width, box
