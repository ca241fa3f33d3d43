"""The command ``volumetric``: verbs are imported when they are called, so that ``--help`` is fast."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import cyclopts

from volumetric import __version__
from volumetric.cli import exits
from volumetric.cli.streams import open_closed_streams, replace_what_cannot_be_shown

VERBS = {
    "generate": "Generate text after one prompt.",
    "chat": "Talk with a model; /help lists the commands.",
    "serve": "Serve models to many users at once, with the interface of OpenAI's API.",
    "embed": "Turn texts into embeddings, as npy, npz or JSON lines.",
    "run": "Run a stream of rows through a network, row by row or tick by tick.",
    "scope": "Record what layers do while a network runs, draw it, or show it live.",
    "train": "Train a network as a TOML file says.",
    "program": "Check, compile or draw programs of regions and edges, compare two, import or export one.",
    "tasks": "List tasks that take memory, or let networks learn them.",
    "evolve": "Evolve networks for a problem as a TOML file says, or draw a run.",
    "bench": "Measure prompt processing and token generation (pp/tg rows, as llama-bench).",
    "perplexity": "Tell how well a model predicts a text.",
    "compare": "Tell how far the predictions of two models are apart.",
    "inspect": "Show what a model is made of: layers, tensors, numeric types, size.",
    "devices": "List the devices of this machine, and which one is chosen by default.",
    "convert": "Write a model in another numeric type or file format.",
    "dna": "Compare two models layer by layer, whatever their numeric types.",
    "merge": "Merge two models of one architecture, layer by layer.",
    "warmup": "Compile and cache the kernels that a model needs on a device.",
}


_ALLOCATIONS = 100_000
"""Objects between two collections of cycles. By Python's 700 a tenth of the time to a first token goes into looking
through what importing and opening have made, all of which stays."""


def app(*, others: bool = False) -> cyclopts.App:
    """Build the command line. Each verb is a function of its name in the module of its name.

    With `others`, packages add verbs of their own, by entry points: see `base.plugins`.
    """
    built = cyclopts.App(
        name="volumetric",
        help="A numeric neural engine: language models and networks of any kind, trained or evolved, on CPU and GPU.",
        version=__version__,
        version_flags=["--version"],
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for verb, text in VERBS.items():
        built.command(f"volumetric.cli.{verb}:{verb}", name=verb, help=text)
    if others:
        from volumetric.base.plugins import VERBS as GROUP
        from volumetric.base.plugins import points

        for point in points(GROUP):
            if point.name not in VERBS:
                home = "another package" if point.dist is None else point.dist.name
                built.command(point.value, name=point.name, help=f"Of {home}: {point.name} --help says what it does.")
    return built


def _run(tokens: Sequence[str]) -> object:
    from volumetric.cli.foreign import in_our_words

    built = app(others=not tokens or tokens[0] not in VERBS)
    return built(in_our_words(tokens, built))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0 success, 1 a failure that was explained on stderr, 2 wrong usage, 130 interrupted
    """
    open_closed_streams()
    replace_what_cannot_be_shown()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    thresholds = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *thresholds[1:])
    try:
        return exits.guard(lambda: _run(tokens), debug="--debug" in tokens, verb=tokens[0] if tokens else "")
    finally:
        gc.set_threshold(*thresholds)
