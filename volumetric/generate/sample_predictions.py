"""Methods of models that read features: outputs for many samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from volumetric.analysis.predict import BATCH, Given, predict_on
from volumetric.base._typing import F32Array
from volumetric.generate.compiled_model import CompiledModel

if TYPE_CHECKING:
    from volumetric.train.table_objects import DataTable


class PredictorMethods(CompiledModel):
    """Methods of `Model` for networks of features."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes of the outputs; empty if the files have none."""
        return self.loaded.classes

    @overload
    def predict(self, inputs: Given | DataTable, *, batch_size: int = BATCH, outputs: None = None) -> F32Array: ...
    @overload
    def predict(
        self, inputs: Given | DataTable, *, batch_size: int = BATCH, outputs: Sequence[str]
    ) -> dict[str, F32Array]: ...
    def predict(
        self, inputs: Given | DataTable, *, batch_size: int = BATCH, outputs: Sequence[str] | None = None
    ) -> F32Array | dict[str, F32Array]:
        """Return the outputs for many samples, float32, samples first; activations are rounded only if `load` set that.

        Inputs are standardised first if the network was trained that way.

        Parameters
        ----------
        inputs : ``[samples, …]``: independent rows, computed `batch_size` at a time; or sequences,
            ``[samples, T, …]``, each from an empty state. If a layer reads other rows, as recurrent ones do,
            ``[T, …]`` is one sequence. Samples of several axes may be flat. For a network with several inputs, a
            mapping of these arrays by name. For a model that was trained on a table, a DataFrame or the like, whose
            columns are chosen by name
        outputs : names of outputs to return, by name; None: only the output ``"output"``

        Raises
        ------
        ShapeError : `inputs` does not match the network, is empty, or has a sequence longer than the context
        GenerationError : an id is outside of the vocabulary
        SpecError : the network has no such output, or a table lacks a column

        Examples
        --------
        >>> load("spirals/model").predict(points).argmax(1)  # doctest: +SKIP
        >>> load("heads/model").predict(points, outputs=["value"])["value"]  # doctest: +SKIP
        """
        from volumetric.train.table_objects import feature_rows

        rows: Given = feature_rows(inputs, self.loaded.features)
        scaling = self.loaded.inputs
        return predict_on(self.executable, self.plan, rows, scaling, batch_size=batch_size, outputs=outputs)
