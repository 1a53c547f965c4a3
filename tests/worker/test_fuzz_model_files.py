"""Mutated model files: whatever a stranger writes, there is a model or one clear line, at once.

Real files and folders are changed in a few places and opened, and all that ``tokenmill inspect``
looks at is read. TOKENMILL_FUZZ_EXAMPLES=100000 makes it a search of hours, see
docs/model-files.md.
"""

import json
import os
import shutil
import time
import tracemalloc

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

from jobs.inspection import as_json, inspect_model
from worker.errors import ModelError

EXAMPLES = int(os.environ.get("TOKENMILL_FUZZ_EXAMPLES", "150"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MOST_SECONDS, MOST_BYTES = 1.0, 50 << 20

GGUF_FILES = ("cases/chain-llama.gguf", "cases/101-truncated-tail/model.gguf")
GGUF_FILES += ("cases/131-split-complete/model-00001-of-00002.gguf",)
GGUF_FILES += ("tiny/gemma3/gemma3-Q8_0.gguf", "tiny/llama-k/llama-k-Q2_K.gguf")
FOLDERS = ("llama3", "gemma3", "mixtral", "phi3long", "gpt2", "gptoss", "qwen35")

HEADER_BYTES = 24_000  # metadata and tensor tables of these files
NUMBERS = [0, 1, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 60, (1 << 64) - 1]
VALUES = [None, True, -1, 0, 1, 7, 1 << 31, 1 << 64, 1e400, 1e-300, "", "x", "default", "yarn"]
VALUES += [[], {}, [1], [[]], {"a": 1}, [None], ["full_attention"], [0.5] * 8]

words = st.sampled_from(NUMBERS).flatmap(
    lambda number: st.sampled_from([1, 2, 4, 8]).map(
        lambda size: (number % (1 << 8 * size)).to_bytes(size, "little")
    )
)
pieces = st.one_of(words, st.binary(max_size=12), st.sampled_from([b"{", b"[", b'"', b"}", b","]))
edits = st.lists(
    st.tuples(st.sampled_from(["put", "insert", "delete", "copy"]), st.integers(0), pieces),
    min_size=1,
    max_size=4,
)


def mutated(content, changes, reach):
    """The content with some bytes overwritten, inserted, removed or there twice."""
    content = bytearray(content)
    for kind, place, piece in changes:
        at = place % min(len(content) + 1, reach)
        length = len(piece) or 40
        if kind == "put":
            content[at : at + len(piece)] = piece
        elif kind == "insert":
            content[at:at] = piece
        elif kind == "delete":
            del content[at : at + length]
        else:
            content[at:at] = content[at : at + length]
    return bytes(content) or b"G"


def check(path):
    """Inspect a model; time, memory and what is said are bounded."""
    tracemalloc.start()
    started = time.process_time()
    try:
        problems = list(inspect_model(str(path)).problems)
        json.dumps(as_json(inspect_model(str(path))))
    except ModelError as error:
        problems = [str(error)]
    finally:
        seconds = time.process_time() - started
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert [problem.splitlines() for problem in problems] == [[each] for each in problems]
    assert max(map(len, problems), default=0) < 2000
    assert seconds < 2 * MOST_SECONDS  # inspected twice
    assert most_bytes < MOST_BYTES


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory, data):
    """Nothing of these files is kept; what is imported late is imported before time is taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENMILL_CACHE", str(tmp_path_factory.mktemp("cache")))
        for sound in (data / GGUF_FILES[0], data / "huggingface" / FOLDERS[0]):
            inspect_model(str(sound))
        yield


@FUZZ
@given(name=st.sampled_from(GGUF_FILES), changes=edits, cut=st.none() | st.integers(0))
def test_a_mutated_gguf_file_is_a_model_or_one_clear_line(data, tmp_path, name, changes, cut):
    """Bytes changed in the header, and the file cut anywhere."""
    content = mutated((data / name).read_bytes(), changes, HEADER_BYTES)
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(content if cut is None else content[: cut % len(content) + 1])
    second = data / "cases/131-split-complete/model-00002-of-00002.gguf"
    if not (tmp_path / "m-00002-of-00002.gguf").exists():
        shutil.copy(second, tmp_path / "m-00002-of-00002.gguf")
    check(path)


@FUZZ
@given(name=st.sampled_from(FOLDERS), changes=edits, cut=st.none() | st.integers(0))
def test_a_mutated_safetensors_file_is_a_model_or_one_clear_line(
    data, tmp_path, name, changes, cut
):
    """Bytes changed in the header, and the file cut anywhere."""
    folder = _copy(data, tmp_path, name)
    content = mutated((folder / "model.safetensors").read_bytes(), changes, 8_000)
    content = content if cut is None else content[: cut % len(content) + 1]
    (folder / "model.safetensors").write_bytes(content)
    check(folder)


@FUZZ
@given(
    name=st.sampled_from(FOLDERS),
    changes=st.lists(st.tuples(st.integers(0), st.sampled_from(VALUES)), min_size=1, max_size=3),
)
def test_a_mutated_config_is_a_model_or_one_clear_line(data, tmp_path, name, changes):
    """Fields, those of rotary positions too, that are missing or hold anything JSON can."""
    folder = _copy(data, tmp_path, name)
    config = json.loads((folder / "config.json").read_text())
    for number, value in changes:
        inner = config.get("rope_parameters")
        inside = isinstance(inner, dict) and inner and number % 3 == 0
        target = inner if inside else config
        target[sorted(target)[number % len(target)]] = value
    (folder / "config.json").write_text(json.dumps(config))
    check(folder)


@FUZZ
@given(changes=edits)
def test_a_mutated_index_is_a_model_or_one_clear_line(data, tmp_path, changes):
    """Bytes changed in the index of shards."""
    folder = _copy(data, tmp_path, "llama3")
    index = {"weight_map": dict.fromkeys(("a", "b", "c"), "model.safetensors")}
    content = mutated(json.dumps(index).encode(), changes, 1000)
    (folder / "model.safetensors.index.json").write_bytes(content)
    check(folder)


@FUZZ
@given(
    name=st.sampled_from(["tokenizer.json", "tokenizer_config.json", "generation_config.json"]),
    changes=edits,
)
def test_a_mutated_tokenizer_is_a_model_or_one_clear_line(data, tmp_path, name, changes):
    """Bytes changed in the files that say how text becomes tokens."""
    folder = _copy(data, tmp_path, "llama3")
    letters = {chr(97 + i): i for i in range(26)} | {"ab": 26, "abc": 27}
    library = tokenizers.Tokenizer(BPE(letters, [("a", "b"), ("ab", "c")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", "</s>"])
    (folder / "tokenizer.json").write_text(library.to_str())
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [29, 3]}))
    check(folder)
    (folder / name).write_bytes(mutated((folder / name).read_bytes(), changes, 8_000))
    check(folder)


def _copy(data, folder, name):
    copy = folder / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data / "huggingface" / name, copy)
    return copy
