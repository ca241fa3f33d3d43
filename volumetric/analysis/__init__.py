"""Analysis of what networks do: predictions, deviations, ensembles, adaptation to changing tasks, clustering."""

from volumetric.analysis.adaptation import AdaptationReport as AdaptationReport
from volumetric.analysis.adaptation import AdaptationTracker as AdaptationTracker
from volumetric.analysis.ensemble import Match as Match
from volumetric.analysis.ensemble import complementary_matches as complementary_matches
from volumetric.analysis.ensemble import majority_vote as majority_vote
from volumetric.analysis.ensemble import similarity as similarity
from volumetric.analysis.evaluation import BUCKETS as BUCKETS
from volumetric.analysis.evaluation import Evaluation as Evaluation
from volumetric.analysis.evaluation import accuracy as accuracy
from volumetric.analysis.evaluation import deviations as deviations
from volumetric.analysis.evaluation import evaluate as evaluate
from volumetric.analysis.hierarchy import group as group
from volumetric.analysis.kmeans import Clusters as Clusters
from volumetric.analysis.kmeans import kmeans as kmeans
from volumetric.analysis.predict import predict as predict
from volumetric.analysis.silhouette import silhouette as silhouette
from volumetric.analysis.silhouette import silhouettes as silhouettes
from volumetric.analysis.standardise import Standardisation as Standardisation
