"""RecordedKind: what an export does with a source on one variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from volumetric.web.variant_writer import VariantWriter


class RecordedKind(Protocol):
    """One kind of network, ready to be recorded once for each variant."""

    @property
    def kind(self) -> str:
        """Kind, as in network.json."""
        ...

    @property
    def title(self) -> str:
        """Short name."""
        ...

    @property
    def origin(self) -> Mapping[str, str | None]:
        """Name, source and licence, as far as they are known."""
        ...

    @property
    def files(self) -> Mapping[str, bytes]:
        """Further files of the folder: name → content."""
        ...

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record the programs of a variant; return the entries of network.json, which are equal for all variants."""
        ...
