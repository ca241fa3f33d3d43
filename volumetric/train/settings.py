"""Settings of a run in a TOML file: network, data, training, recording. All have defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from volumetric.base import config_tables
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.clocked.clocked_json import clock_of
from volumetric.layers.clock import Clock
from volumetric.network.grid import Coord
from volumetric.train.coercion import as_loss
from volumetric.train.modes import Systolic, TargetPropagation
from volumetric.train.sample_probe import MOST_SAMPLES
from volumetric.train.training_config import TrainConfig

_OF_EVOLVE: Final = frozenset(
    {"algorithm", "genome", "species", "reproduction", "mutation", "population", "generations", "fitness", "problem"}
    | {"search", "novelty", "budget"}
)
"""Keys of files for ``evolve``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Source of the network: at most one of the first three; by default the builder that fits the data.

    Attributes
    ----------
    builder : name of a function of `volumetric.builders`
    file : ``network.json`` of this package, or a network of the Go engine as JSON
    model : any model that `volumetric generate` accepts; training continues from its weights
    dtype : scheme that the weights of `model` are converted to
    options : keywords of the builder; sizes that follow from the data are optional
    init : pattern of parameters → name of their initial values, see `network.initialise`
    """

    builder: str = ""
    file: str = ""
    model: str = ""
    dtype: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    init: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that at most one source is set."""
        _at_most_one(self, ("builder", "file", "model"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """Source of the samples: at most one of the first eight; by default the problem ``xor``.

    Attributes
    ----------
    problem : name of a function of `volumetric.train.problems`
    npz, csv, parquet, text : files; paths are relative to the configuration's directory
    npy : ``inputs``, ``targets`` and perhaps ``mask`` → a ``.npy`` file
    images, audio : folders with a folder of images, or of WAV files, for each class
    size, channels : height and width to which images are scaled (empty: their own), and channels (0: 3, of sounds 1)
    rate, samples : samples a second that sounds must have (0: those of the first), and samples of a sound (0: of the
        longest)
    options : keywords of the problem
    inputs, targets, mask : names of the arrays in an ``.npz`` file; or array names by input or output of the network
        (see `load_npz`)
    columns : names of the target columns of a table (empty: the last one)
    header : whether the first line of a CSV file has the column names; without a header columns are named by position,
        "0", "1", …; default: true unless the first line has a number in every numeric column
    classes : whether the target column of a table holds class names
    standardise : scale features to mean 0 and deviation 1 by statistics of the training samples; the model stores them
    length, stride : tokens of a text window, and tokens between window starts (0: `length`)
    batch_size, shuffle, drop_last : see `ArrayData`
    validation : fraction of the samples to hold out, or another file of the same kind
    """

    problem: str = ""
    npz: str = ""
    csv: str = ""
    parquet: str = ""
    text: str = ""
    images: str = ""
    audio: str = ""
    npy: dict[str, str] = field(default_factory=dict)
    size: tuple[int, ...] = ()
    channels: int = 0
    rate: int = 0
    samples: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    inputs: str | dict[str, str] = "inputs"
    targets: str | dict[str, str] = "targets"
    mask: str | dict[str, str] = "mask"
    columns: tuple[str, ...] = ()
    header: bool | None = None
    classes: bool = False
    standardise: bool = False
    length: int = 64
    stride: int = 0
    batch_size: int = 32
    shuffle: bool = True
    drop_last: bool = False
    validation: float | str = 0.0

    def __post_init__(self) -> None:
        """Check that at most one source is set, and the sizes."""
        _at_most_one(self, ("problem", "npz", "csv", "parquet", "text", "images", "audio", "npy"))
        if self.npy and not {"inputs", "targets"} <= self.npy.keys() <= {"inputs", "targets", "mask"}:
            raise SpecError(
                f"npy names files of inputs, targets and perhaps mask, got {', '.join(self.npy)}",
                hint='npy = { inputs = "x.npy", targets = "y.npy" }',
            )
        if min(self.channels, self.rate, self.samples) < 0:
            raise SpecError(
                "channels, rate and samples must not be below 0", hint="leave them out for those of the files"
            )
        if self.length < 1 or self.stride < 0:
            raise SpecError(
                f"length {self.length} must be above 0 and stride {self.stride} at least 0",
                hint="the defaults are length = 64 and stride = 0 (stride equal to length)",
            )
        config_tables.at_least_one("batch_size", self.batch_size, "32")
        if isinstance(self.validation, float) and not 0 <= self.validation < 1:
            raise SpecError(
                f"validation must be a file or a fraction in 0 … 1, got {self.validation}",
                hint="set validation = 0.2 to hold out a fifth of the samples",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockedSettings:
    """Clocked execution: for mode "systolic", and for mode "target" if the table exists.

    Empty fields use the values of the model, else the defaults below.

    Attributes
    ----------
    clocks : coordinate of a layer → its clock, as text or as a table of period and phase; other layers fire at
        every tick
    hold : input → its value without a row: ``"last"`` (default) or ``"zero"``
    start : ``"zeros"`` (default) or ``"wavefront"``
    """

    clocks: dict[str, str | dict[str, int]] = field(default_factory=dict)
    hold: dict[str, Literal["last", "zero"]] = field(default_factory=dict)
    start: Literal["", "zeros", "wavefront"] = ""

    def __post_init__(self) -> None:
        """Check the clocks."""
        for place, clock in self.clocks.items():
            _clock(place, clock)

    def machine(self, clocked: Clocked) -> Clocked:
        """Return a clocked network with these settings.

        Raises
        ------
        SpecError : they name a layer or an input that the network does not have
        """
        changes: dict[str, Any] = {
            "clocks": dict(_clock(place, clock) for place, clock in self.clocks.items()),
            "hold": self.hold,
            "start": self.start,
        }
        try:
            return dataclasses.replace(clocked, **{name: value for name, value in changes.items() if value})
        except SpecError as error:
            raise SpecError(f"[clocked] {error}", hint=error.hint) from None


def _clock(place: str, clock: str | dict[str, int]) -> tuple[Coord, Clock]:
    try:
        coord = Coord.parse(place)
    except SpecError as error:
        raise SpecError(f"clocks: {error}", hint='name a layer, as "0.0.1.0"') from None
    return coord, clock_of(clock, f"clocks.{place!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """History files of training: ``history.jsonl`` and ``history.csv``, with a line for each update and epoch.

    Attributes
    ----------
    tensorboard : also write event files in the directory ``tensorboard``
    weights : also write norms, changes and histograms of the weights at every epoch to ``weights.jsonl``
    samples : number of samples, at most 24, whose predictions at every epoch are written to ``samples.jsonl``
    """

    jsonl: bool = True
    csv: bool = False
    tensorboard: bool = False
    weights: bool = False
    samples: int = 0

    def __post_init__(self) -> None:
        """Check the number of samples."""
        if not 0 <= self.samples <= MOST_SAMPLES:
            raise SpecError(f"samples must be in 0 … {MOST_SAMPLES}, got {self.samples}", hint="0 writes none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveSettings:
    """Reports about layers: to stderr, to ``layers.jsonl``, on a local HTTP port.

    Attributes
    ----------
    log, jsonl : report to stderr, and to ``layers.jsonl``
    every : steps between records
    http : TCP port, 0 for a free one, -1 for none
    window : steps over which HTTP aggregates
    """

    log: bool = False
    jsonl: bool = False
    every: int = 1
    http: int = -1
    window: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """All settings of a run.

    Attributes
    ----------
    name : name of the run: the file name without its suffix
    home : base directory of relative paths
    seed : for weights, the order of samples, the split, and random numbers of layers in training
    device : training device, as for `volumetric.open_device`
    output : directory of model, checkpoints and history, relative to the working directory; empty: the name of the run
    resume : continue from the newest checkpoint in `output`, if it exists
    reporters : names of reporters, or tables with a name under ``kind`` and options; see `base.reporting.reporter`
    loss_given : whether the file sets a loss; by default cross entropy for classes, else mse
    clocked_given : whether the file has a table ``[clocked]``, which may be empty
    """

    name: str = "run"
    home: Path = Path()
    seed: int = 0
    device: str = "auto"
    output: str = ""
    resume: bool = False
    reporters: tuple[Any, ...] = ()
    network: NetworkSettings = field(default_factory=NetworkSettings)
    data: DataSettings = field(default_factory=DataSettings)
    train: TrainConfig = field(default_factory=TrainConfig)
    clocked: ClockedSettings = field(default_factory=ClockedSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    observe: ObserveSettings = field(default_factory=ObserveSettings)
    loss_given: bool = False
    clocked_given: bool = False

    def __post_init__(self) -> None:
        """Check the seed, and that the sections match."""
        if self.seed < 0:
            raise SpecError(f"seed must be 0 or more, got {self.seed}", hint="use any integer of 0 or more")
        if self.clocked != ClockedSettings() and not self.ticking:
            raise SpecError(
                f"[clocked] is for modes 'systolic' and 'target', and [train] mode is {self.train.mode.kind!r}",
                hint='set mode = "systolic" in [train], or remove [clocked]',
            )

    @property
    def ticking(self) -> bool:
        """Whether the network is clocked."""
        mode = self.train.mode
        return isinstance(mode, Systolic) or (isinstance(mode, TargetPropagation) and self.clocked_given)

    @property
    def directory(self) -> Path:
        """Output directory of the run."""
        return Path(self.output or self.name).expanduser()

    @property
    def checkpoints(self) -> Path:
        """Directory of the run's checkpoints."""
        return self.directory / "checkpoints"

    def path(self, text: str) -> Path:
        """Return a path of the file, relative to `home`."""
        return self.home / Path(text).expanduser()


def _at_most_one(settings: object, names: tuple[str, ...]) -> None:
    present = [name for name in names if getattr(settings, name)]
    if len(present) > 1:
        raise SpecError(f"{' and '.join(present)} exclude each other", hint=f"keep one of them: {' or '.join(present)}")


def read_settings(path: str | Path, changes: Mapping[str, Any] | None = None) -> RunSettings:
    """Read a configuration file.

    Parameters
    ----------
    changes : entries by dotted names, as ``"train.epochs"``, that override the file

    Raises
    ------
    SpecError
        The file is not TOML, or has an unknown, ill-typed or invalid entry, which the message names.
    """
    return config_tables.read_toml(
        Path(path), changes, lambda table, name, home: settings_from(table, name=name, home=home)
    )


_SCALARS: Final[Mapping[str, Any]] = {
    "seed": int,
    "device": str,
    "output": str,
    "resume": bool,
    "reporters": tuple[Any, ...],
}
_SECTIONS: Final[Mapping[str, type]] = {
    "network": NetworkSettings,
    "data": DataSettings,
    "clocked": ClockedSettings,
    "history": HistorySettings,
    "observe": ObserveSettings,
}


def place_of(key: str) -> str | None:
    """Return the dotted name of a key in a file for ``train``, as "train.epochs"; None if unknown."""
    if key in _SCALARS:
        return key
    sections = {"train": TrainConfig, **_SECTIONS}
    section = next((name for name, of in sections.items() if key in config_tables.argument_types(of)), None)
    return None if section is None else f"{section}.{key}"


def settings_from(table: Mapping[str, Any], *, name: str = "run", home: Path | None = None) -> RunSettings:
    """Create settings from the tables of a TOML file. Raises `SpecError` as `read_settings` does."""
    allowed = (*_SCALARS, *_SECTIONS, "train")

    def elsewhere(key: str) -> str | None:
        if key in _OF_EVOLVE:
            return "this key belongs to evolution: volumetric evolve FILE"
        place = place_of(key)
        return None if place is None else f"write it in [{place.partition('.')[0]}]: {place}"

    entries = config_tables.expect_keys(dict(table), allowed, "configuration", elsewhere=elsewhere)
    values: dict[str, Any] = {
        key: config_tables.checked_value(entries[key], to, key) for key, to in _SCALARS.items() if key in entries
    }
    values |= {
        key: config_tables.call_with_table(make, entries.get(key, {}), f"[{key}]") for key, make in _SECTIONS.items()
    }
    section = entries.get("train", {})
    return RunSettings(
        name=name,
        home=home or Path(),
        **values,
        train=_train(section, values.get("seed", 0), home or Path()),
        loss_given=isinstance(section, dict) and "loss" in section,
        clocked_given="clocked" in entries,
    )


def _train(section: object, seed: int, home: Path) -> TrainConfig:
    table: dict[str, Any] = {"seed": seed} | dict(
        config_tables.expect_keys(section, config_tables.argument_types(TrainConfig), "[train]")
    )
    if table.get("loss_weights") and "loss" not in table:
        raise SpecError("[train] loss_weights: loss is not set", hint='set loss = { output = "mse", value = "mse" }')
    try:
        if "loss" in table:
            table["loss"] = as_loss(table["loss"], "loss", home)
        return TrainConfig(**table)
    except SpecError as error:
        raise SpecError(f"[train] {error}", hint=error.hint) from None
