"""Fixtures for the tokenizer's tests."""

import os
from pathlib import Path

import pytest

from .vocab_file import byte_level

BESIDE = Path(__file__).parents[3].parent / "shared" / "vocab"
VOCAB_FOLDER = Path(os.environ.get("TOKENMILL_VOCAB_DIR", BESIDE))


@pytest.fixture(scope="session")
def vocab_folder() -> Path:
    """The folder with llama.cpp's vocabularies and test vectors, too large to ship."""
    if not VOCAB_FOLDER.is_dir():
        pytest.skip("no vocabularies: set TOKENMILL_VOCAB_DIR to the folder with ggml-vocab-*.gguf")
    return VOCAB_FOLDER


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A byte-level tokenizer of 264 tokens, without BOS."""
    return byte_level(tmp_path_factory.mktemp("vocab") / "small.gguf")
