# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .batch_stream import BatchStream as BatchStream
from .load_model import load as load
from .model import Model as Model
from .params import SamplingParams as SamplingParams
from .params import merge as merge
from .scheduler import Scheduler as Scheduler
from .scheduling.jobs import Job as Job
from .scheduling.jobs import JobEvent as JobEvent
from .scheduling.jobs import Ticket as Ticket
from .scheduling.limits import Limits as Limits
from .session import Session as Session
from .token_events import FinishReason as FinishReason
from .token_events import Generation as Generation
from .token_events import GenerationStats as GenerationStats
from .token_events import TokenEvent as TokenEvent
from .token_stream import Stream as Stream
