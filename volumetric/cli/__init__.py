"""The command ``volumetric``: commands are imported when they are called, so that ``--help`` is fast."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import cyclopts

from volumetric import __version__
from volumetric.cli import exits
from volumetric.cli.stdio import open_closed_streams, replace_unprintable
from volumetric.cli.whole_numbers import refuse_fractions

GROUPS = {
    "Run models": {
        "generate": "Generate text after one prompt.",
        "chat": "Chat with a model; /help lists the commands.",
        "serve": "Serve models to many clients at once, with OpenAI's API.",
        "embed": "Compute embeddings of texts, and write them as npy, npz or JSON lines.",
        "run": "Run a stream of rows through a network, row by row or tick by tick.",
    },
    "Train and evolve": {
        "new": "Write a small project to start from: network, data and a README, from a template.",
        "train": "Train a network from a TOML file.",
        "evolve": "Evolve networks for a problem from a TOML file, or draw a run.",
        "tasks": "List tasks that need memory, or train networks on them.",
    },
    "Look": {
        "inspect": "Show the structure of a model: layers, tensors, numeric types, size.",
        "scope": "Record the activity of layers while a network runs, draw it, or show it live.",
        "program": "Check, compile or draw programs of regions and edges, compare two, import or export one.",
        "dna": "Compare two models layer by layer, whatever their numeric types.",
        "compare": "Measure the difference between the predictions of two models.",
        "perplexity": "Measure the perplexity of a model on a text.",
    },
    "Convert and share": {
        "convert": "Convert a model to another numeric type or file format.",
        "export": "Write a network as a page that runs it in browsers.",
        "merge": "Merge two models of one architecture, layer by layer.",
    },
    "This machine": {
        "doctor": "Report versions, devices, caches, and what is slow or broken on this machine.",
        "devices": "List the devices of this machine, and the default one.",
        "bench": "Measure prompt processing and token generation (pp/tg rows, as in llama-bench).",
        "warmup": "Compile and cache the kernels that a model needs on a device.",
    },
}
"""Task → its commands, in the order of ``--help``."""

COMMANDS = {verb: text for commands in GROUPS.values() for verb, text in commands.items()}
OTHERS = "From other packages"
"""Group of the commands that entry points add."""


_ALLOCATIONS = 100_000
"""Objects between two garbage collections. With Python's default of 700, a tenth of the time to the first token goes
into scanning objects of imports and model loading, all of which stay alive."""


def app(*, others: bool = False) -> cyclopts.App:
    """Build the command line. Each command is a function in the module of the same name.

    With `others`, other packages add commands through entry points: see `base.plugins`.
    """
    built = cyclopts.App(
        name="volumetric",
        help="Run, train and evolve neural networks of any kind, from XOR to language models, on CPU and GPU.",
        version=__version__,
        version_flags=["--version"],
        config=refuse_fractions,
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for place, (title, commands) in enumerate(GROUPS.items()):
        group = cyclopts.Group(title, sort_key=place)
        for turn, (verb, text) in enumerate(commands.items()):
            built.command(f"volumetric.cli.{verb}:{verb}", name=verb, help=text, group=group, sort_key=turn)
    flags = cyclopts.Group("Flags", sort_key=len(GROUPS) + 1)
    for name in ("--help", "--version"):
        built[name].group = flags
    if others:
        from volumetric.base.plugins import VERBS as GROUP
        from volumetric.base.plugins import entry_points_of

        for point in entry_points_of(GROUP):
            if point.name not in COMMANDS:
                home = "another package" if point.dist is None else point.dist.name
                text = f"From {home}: see {point.name} --help."
                built.command(
                    point.value, name=point.name, help=text, group=cyclopts.Group(OTHERS, sort_key=len(GROUPS))
                )
    return built


def _run(tokens: Sequence[str]) -> object:
    from volumetric.cli.foreign import translate_flags
    from volumetric.cli.plugin_flags import import_flagged

    import_flagged(tokens)
    built = app(others=not tokens or tokens[0] not in COMMANDS)
    return built(translate_flags(tokens, built))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0 success, 1 a failure that was explained on stderr, 2 wrong usage, 130 interrupted
    """
    open_closed_streams()
    replace_unprintable()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    thresholds = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *thresholds[1:])
    try:
        return exits.run_guarded(lambda: _run(tokens), debug="--debug" in tokens, verb=tokens[0] if tokens else "")
    finally:
        gc.set_threshold(*thresholds)
