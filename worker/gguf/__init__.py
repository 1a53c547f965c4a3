"""Reading GGUF model files: memory-mapped, and checked before anything is believed."""

from .dequantize import STREAMED_BYTES, dequantize
from .file import GGUFFile
from .metadata import Metadata
from .model_file import ModelFile
from .quant_types import SUPPORTED_TYPES
from .tensor_info import TensorInfo

__all__ = [
    "STREAMED_BYTES",
    "SUPPORTED_TYPES",
    "GGUFFile",
    "Metadata",
    "ModelFile",
    "TensorInfo",
    "dequantize",
]
