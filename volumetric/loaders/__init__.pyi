# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .chat_template import ChatTemplate as ChatTemplate
from .exported_rows import load_exported as load_exported
from .exported_rows import read_exported as read_exported
from .exported_rows import save_exported as save_exported
from .generation_config import GenerationDefaults as GenerationDefaults
from .loaded_model import LoadedModel as LoadedModel
from .loaded_model import open_model as open_model
from .named_arrays import read_arrays as read_arrays
from .named_arrays import save_arrays as save_arrays
from .native_checkpoint import save_native as save_native
from .onnx_export.save_onnx import save_onnx as save_onnx
from .onnx_import.network_onnx import onnx_network as onnx_network
from .onnx_import.run_onnx import OnnxModel as OnnxModel
from .onnx_import.run_onnx import load_onnx as load_onnx
from .stream_decoder import StreamDecoder as StreamDecoder
from .tokenizer import Tokenizer as Tokenizer
