"""What networks of features do for a model: outputs for many samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from volumetric.analysis.predict import BATCH, Given, predict_on
from volumetric.base._typing import F32Array
from volumetric.generate.compiled_model import CompiledModel


class Predicts(CompiledModel):
    """The methods of a `Model` that take samples."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that the outputs stand for; empty where the files have none."""
        return self.loaded.classes

    @overload
    def predict(self, inputs: Given, *, batch_size: int = BATCH, outputs: None = None) -> F32Array: ...
    @overload
    def predict(self, inputs: Given, *, batch_size: int = BATCH, outputs: Sequence[str]) -> dict[str, F32Array]: ...
    def predict(
        self, inputs: Given, *, batch_size: int = BATCH, outputs: Sequence[str] | None = None
    ) -> F32Array | dict[str, F32Array]:
        """Return the outputs for many samples, float32, samples first; nothing is rounded unless `load` was told to.

        Inputs are standardised first where the network was trained so.

        Parameters
        ----------
        inputs : ``[samples, …]``: rows, each for itself, computed `batch_size` at a time; or sequences,
            ``[samples, T, …]``, each from an empty state. Where a layer reads other rows, as recurrent ones do,
            ``[T, …]`` is one sequence. Samples of several axes may come flat. Where the network has several inputs,
            such arrays by name
        outputs : names of outputs that are wanted, and handed back by name; None: the output ``"output"`` alone

        Raises
        ------
        ShapeError : `inputs` is not what the network reads, has no sample, or a sequence longer than the context
        GenerationError : an id is outside of the vocabulary
        SpecError : the network has no such output

        Examples
        --------
        >>> load("spirals/model").predict(points).argmax(1)  # doctest: +SKIP
        >>> load("heads/model").predict(points, outputs=["value"])["value"]  # doctest: +SKIP
        """
        scaling = self.loaded.inputs
        return predict_on(self.executable, self.plan, inputs, scaling, batch_size=batch_size, outputs=outputs)
