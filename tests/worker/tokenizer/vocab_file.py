"""Small vocabularies, written as GGUF files."""

from pathlib import Path

from gguf import GGUFWriter, TokenType

from worker.gguf import GGUFFile
from worker.tokenizer.tokenizer import Tokenizer

BLANK = "\u2581"


def byte_alphabet() -> list[str]:
    """The characters that stand for bytes 0 to 255 in byte-level BPE, by GPT-2's published rule."""
    kept = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(moved)) for byte in range(256)]


def write_vocab(
    path: Path,
    model: str,
    tokens: list[str],
    *,
    types: dict[str, TokenType] | None = None,
    scores: list[float] | None = None,
    merges: list[str] | None = None,
    keys: dict[str, object] | None = None,
) -> Path:
    """Write a file that holds a vocabulary alone; tokens not in ``types`` are normal."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types([(types or {}).get(token, TokenType.NORMAL) for token in tokens])
    if scores is not None:
        writer.add_token_scores(scores)
    if merges is not None:
        writer.add_token_merges(merges)
    for key, value in (keys or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        add[type(value)](key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def open_tokenizer(path: Path) -> Tokenizer:
    """Build the tokenizer of a file."""
    return Tokenizer.from_metadata(GGUFFile.open(path).metadata)


def byte_level(path: Path, **changes: object) -> Tokenizer:
    """Build a byte-level tokenizer: 256 bytes, five merged, two control, one user-defined token."""
    tokens = [
        *byte_alphabet(),
        "he",
        "ll",
        "llo",
        "hello",
        "\u0120hello",
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
    ]
    control = dict.fromkeys(("<|im_start|>", "<|im_end|>"), TokenType.CONTROL)
    arguments = {
        "types": {**control, "<think>": TokenType.USER_DEFINED},
        "merges": ["h e", "l l", "ll o", "he llo", "\u0120 hello"],
        "keys": {"tokenizer.ggml.pre": "gpt-2"},
    }
    return open_tokenizer(write_vocab(path, "gpt2", tokens, **{**arguments, **changes}))
