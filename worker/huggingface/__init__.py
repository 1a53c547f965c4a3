"""Reading checkpoint folders in Hugging Face layout, under the names that GGUF gives things."""

from .folder import HuggingFaceFolder

__all__ = ["HuggingFaceFolder"]
