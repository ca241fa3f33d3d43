# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .chat import ChatTemplate as ChatTemplate
from .exported_rows import load_exported as load_exported
from .exported_rows import read_exported as read_exported
from .exported_rows import save_exported as save_exported
from .generation_config import GenerationDefaults as GenerationDefaults
from .model import LoadedModel as LoadedModel
from .model import open_model as open_model
from .native import save_native as save_native
from .tokenizer import StreamDecoder as StreamDecoder
from .tokenizer import Tokenizer as Tokenizer
