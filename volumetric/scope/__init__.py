"""The scope: pages that show networks, recordings, training and evolution, alone or while they run."""

from volumetric.scope.document import ScopeDocument as ScopeDocument
from volumetric.scope.document import ScopeView as ScopeView
from volumetric.scope.viewer import Viewer as Viewer
