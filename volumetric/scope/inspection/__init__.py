"""What the inspector of the scope shows: facts of layers, parameters as matrices, and where one number comes from."""

from volumetric.scope.inspection.inspected_view import InspectionSource, inspected
from volumetric.scope.inspection.inspection import Inspection

__all__ = ["Inspection", "InspectionSource", "inspected"]
