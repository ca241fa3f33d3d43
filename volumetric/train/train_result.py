"""The result of training, and the position of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, overload

from volumetric.analysis.predict import BATCH, Given, predict
from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import SpecError
from volumetric.base.event_series import EventSeries
from volumetric.base.notebook_html import facts_table
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.base.sparkline import sparkline, sparkline_svg
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import AnyDevice
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.output_losses import Tally, Terms
from volumetric.train.table_objects import DataTable, feature_rows
from volumetric.train.training_events import EpochEvent


class EpochHistory(EventSeries[EpochEvent]):
    """The events of epochs. ``history["loss"]`` is the list of their losses, as in Keras."""

    __slots__ = ()

    word: ClassVar[str] = "epoch"
    values: ClassVar[tuple[str, ...]] = ("loss", "validation_loss", "accuracy", "metric", "epoch", "step")
    columns: ClassVar[int] = 4
    synonyms: ClassVar[Mapping[str, str]] = {"val_loss": "validation_loss", "acc": "accuracy"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainResult:
    """The result of training. In a notebook it shows itself as a table with the curve of the loss.

    Attributes
    ----------
    params : weights after the last update
    best : weights with the best validation loss; `params` without validation data
    reason : why training ended: ``"epochs"``, ``"max_steps"``, ``"patience"`` or ``"interrupted"``
    steps : number of updates, including those before a resume
    history : one event for each epoch, including those before a resume. An epoch that `max_steps` or an interrupt ends
        has an event of its updates so far; after a resume the event covers the whole epoch. ``history["loss"]`` lists
        the losses
    overlays : trained low-rank factors by key, else empty; they are merged into `params`
    network : the trained network
    seconds : duration of training
    device : device of `predict` unless it is passed one: that of training
    classes, features : names of classes and of input columns, if the data have them; `save` keeps them
    """

    params: Params
    best: Params
    reason: str
    steps: int
    history: EpochHistory
    network: Network | Clocked
    overlays: Mapping[str, Array] = field(default_factory=dict)
    seconds: float = 0.0
    device: AnyDevice = "auto"
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def loss(self) -> float:
        """Loss of the last epoch; NaN if there was none."""
        return self.history[-1].loss if self.history else math.nan

    @overload
    def predict(
        self, x: Given | DataTable, *, device: AnyDevice | None = ..., batch_size: int = ..., outputs: None = ...
    ) -> F32Array: ...
    @overload
    def predict(
        self, x: Given | DataTable, *, device: AnyDevice | None = ..., batch_size: int = ..., outputs: Sequence[str]
    ) -> dict[str, F32Array]: ...
    def predict(
        self,
        x: Given | DataTable,
        *,
        device: AnyDevice | None = None,
        batch_size: int = BATCH,
        outputs: Sequence[str] | None = None,
    ) -> F32Array | dict[str, F32Array]:
        """Return outputs of the network with the weights `best`; see `volumetric.predict`.

        Each call prepares the network anew. To predict often, save the result and open it by `volumetric.load`. The
        outputs of a clocked network are those of the network without clocks, as for `volumetric.load`. If the network
        was trained on a table, `x` may be a table, whose columns are chosen by name.
        """
        return predict(
            self._structure,
            self.best,
            feature_rows(x, self.features),
            device=self.device if device is None else device,
            batch_size=batch_size,
            outputs=outputs,
        )

    def __call__(self, x: Given | DataTable) -> F32Array:
        """Return ``predict(x)``."""
        return self.predict(x)

    def save(self, path: str | os.PathLike[str], *, tokenizer: Literal["bytes"] | None = None) -> None:
        """Write the network with the weights `best` to a directory for `volumetric.load`, replaced atomically.

        A name that ends in .onnx, .npz, .safetensors, .py or .c is a file of that format, as `volumetric convert` has.

        Parameters
        ----------
        path : the directory: new, empty, or with an earlier model; or a file
        tokenizer : ``"bytes"`` for a network that reads and predicts the bytes of texts (see `token_windows`): the
            model then generates text

        Raises
        ------
        CheckpointError : the directory cannot be written, or holds something else
        UnsupportedError : the name ends as a file of another format, or the format cannot store the network
        """
        from volumetric.loaders.byte_tokenizer import byte_tokenizer_json
        from volumetric.loaders.convert_model import save_network
        from volumetric.loaders.native_facts import NativeFacts

        clocked = self.network if isinstance(self.network, Clocked) else None
        files: dict[str, bytes] = {}
        if tokenizer is not None:
            _check_byte_network(self._structure, tokenizer)
            files["tokenizer.json"] = byte_tokenizer_json()
        facts = NativeFacts(classes=self.classes, features=self.features)
        save_network(path, self._structure, self.best, facts=facts, files=files, clocked=clocked)

    def scope(self, *others: TrainResult, names: Sequence[str] | None = None) -> ScopePage:
        """Return a page with the curves of this run, and of others beside it; `names` are the names of the runs."""
        return page_of("training", self, others=others, names=names)

    @property
    def _structure(self) -> Network:
        return self.network.network if isinstance(self.network, Clocked) else self.network

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("epochs", f"{len(self.history)}"), ("updates", f"{self.steps}")]
        last = self.history[-1] if self.history else None
        if last is not None:
            rows.append(("loss", f"{last.loss:.6g}"))
        if last is not None and last.validation_loss is not None:
            best = min(value for value in self.history["validation_loss"] if value is not None)
            rows.append(("validation loss", f"{last.validation_loss:.6g}, best {best:.6g}"))
        if last is not None and last.accuracy is not None:
            rows.append(("accuracy", f"{last.accuracy:.2%}"))
        return [*rows, ("time", f"{self.seconds:.2f} s"), ("ended by", self.reason)]

    def __repr__(self) -> str:
        rows = self._rows()
        if len(self.history) > 1:
            rows.append(("loss by epoch", sparkline(self.history["loss"])))
        return "\n".join(["TrainResult", *(f"  {name:<15}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        curve = sparkline_svg(self.history["loss"]) if len(self.history) > 1 else ""
        return facts_table(self._rows(), pictures={"loss by epoch": curve})


def _check_byte_network(network: Network, tokenizer: str) -> None:
    """Raise `SpecError` unless `tokenizer` is ``"bytes"``, and `network` reads ids and returns 256 logits."""
    if tokenizer != "bytes":
        raise SpecError(
            f"tokenizer must be 'bytes', got {tokenizer!r}",
            hint="for another one, pass its files to volumetric.loaders.save_native(…, files={'tokenizer.json': …})",
        )
    width = network.shapes[network.taps["output"]][-1]
    if network.input_dtype != "int32" or width != 256:
        raise SpecError(
            f"a network of bytes reads ids and returns 256 logits; this one reads {network.input_dtype} "
            f"and returns {width}",
            hint="begin with Embedding(256, features), and end with Dense(features, 256)",
        )


@dataclass(slots=True)
class Progress:
    """Position of a run: epoch, next batch in it, and running values."""

    epoch: int = 0
    batch: int = 0
    terms: dict[str, tuple[float, float]] = field(default_factory=dict)
    best_loss: float = math.inf
    epochs_since_best: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tally(self) -> Tally:
        """Sums and numbers of the losses' terms in the epoch so far."""
        return Tally({name: Terms(*of) for name, of in self.terms.items()})
