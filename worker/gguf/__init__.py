"""Reading GGUF model files: memory-mapped, and checked before anything is believed."""

from .dequantize import dequantize
from .file import GGUFFile
from .metadata import Metadata
from .quant_types import SUPPORTED_TYPES
from .tensor_info import TensorInfo

__all__ = ["SUPPORTED_TYPES", "GGUFFile", "Metadata", "TensorInfo", "dequantize"]
