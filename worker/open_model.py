"""Opening a model of any kind that tokenmill reads."""

from pathlib import Path

from .gguf import GGUFFile, ModelFile
from .huggingface import HuggingFaceFolder


def open_model(path: Path | str, *, any_type: bool = False) -> ModelFile:
    """Open a GGUF file (of a split model, its first shard) or a Hugging Face checkpoint folder.

    Args:
        path: of the file or folder.
        any_type: open a GGUF file although tensors have types that cannot be dequantised, to look
            at it.

    Raises:
        GGUFError: a file is missing, or is not a sound GGUF file.
        CheckpointError: the folder is not a sound checkpoint.
        UnsupportedModelError: it is of a kind that tokenmill cannot run.
    """
    if Path(path).is_dir():
        return HuggingFaceFolder.open(path)
    return GGUFFile.open(path, any_type=any_type)
