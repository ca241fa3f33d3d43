# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .batch import BatchStream as BatchStream
from .events import FinishReason as FinishReason
from .events import Generation as Generation
from .events import GenerationStats as GenerationStats
from .events import TokenEvent as TokenEvent
from .model import Model as Model
from .opening import load as load
from .params import SamplingParams as SamplingParams
from .params import merge as merge
from .scheduler import Scheduler as Scheduler
from .scheduling.job import Event as Event
from .scheduling.job import Job as Job
from .scheduling.job import Ticket as Ticket
from .scheduling.limits import Limits as Limits
from .session import Session as Session
from .stream import Stream as Stream
