"""The GGUF trouble cases of tests/data that the reader itself answers for."""

import time
import tracemalloc

import pytest

from worker.errors import GGUFError, ModelError, UnsupportedModelError
from worker.gguf import GGUFFile

REFUSED = {
    "101-truncated-tail/model.gguf": ["output.weight", "114416", "110336", "copy or download"],
    "103-html-instead-of-model/model.gguf": ["b'<!DO", "b'GGUF'", "HTML page, fetch the file"],
    "105-version-from-the-future/model.gguf": ["version 4", "2 and 3"],
    "107-big-endian/model.gguf": ["big-endian", "convert the file to little-endian"],
    "111-alignment-zero/model.gguf": ["general.alignment", " 0 "],
    "113-tensor-count-huge/model.gguf": ["tensor count", "1152921504606846976", "too small"],
    "115-key-length-huge/model.gguf": ["length", "281474976710655", "32 bytes"],
    "117-dimensions-overflow/model.gguf": ["blk.9.extra.weight", "[4294967296, 4294967296, 2]"],
    "119-nested-arrays/model.gguf": ["user.nest", "nested arrays"],
    "121-duplicate-key/model.gguf": ["llama.context_length", "twice", "256", " 8"],
    "123-unknown-quantization/model.gguf": ["blk.1.ffn_up.weight", "type 153", "Q4_K", "IQ4_XS"],
    "125-row-not-a-block-multiple/model.gguf": ["blk.0.attn_q.weight", "48", "32", "Q8_0"],
    "129-split-second-missing/model-00001-of-00002.gguf": [
        "model-00002-of-00002.gguf",
        "put all shards into one folder",
    ],
    "131-split-complete/model-00002-of-00002.gguf": ["name the first", "model-00001-of-00002.gguf"],
    "149-offset-unaligned/model.gguf": ["output.weight", "86980", "multiple of the alignment 32"],
}

SOUND = [
    "109-alignment-64/model.gguf",
    "127-nan-scale-everywhere/model.gguf",
    "131-split-complete/model-00001-of-00002.gguf",
    "133-head-count-missing/model.gguf",
    "135-tied-embeddings/model.gguf",
    "137-rope-factors/model.gguf",
    "139-more-tokens-than-rows/model.gguf",
    "141-no-tokenizer/model.gguf",
    "143-scores-without-merges/model.gguf",
    "145-embedding-transposed/model.gguf",
    "147-block-count-huge/model.gguf",
    "151-architecture-unknown/model.gguf",
]


@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_file_is_refused_in_one_line_that_names_the_trouble(data, name):
    """Each damaged file gives one line with the file's name, the field, the values and a fix."""
    with pytest.raises(ModelError) as caught:
        GGUFFile.open(data / "cases" / name)
    message = str(caught.value)
    wanted = [name.split("/")[1], *REFUSED[name]]
    assert [] == [part for part in wanted if part not in message]
    assert "\n" not in message


@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_file_is_refused_at_once(data, name):
    """In under a second and 50 MB, whatever counts and lengths it promises."""
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(ModelError):
        GGUFFile.open(data / "cases" / name)
    seconds = time.process_time() - started
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 1
    assert most_bytes < 50 << 20


@pytest.mark.parametrize("name", SOUND)
def test_a_file_whose_trouble_is_not_the_readers_opens(data, name):
    """Files that are sound GGUF open, whatever the model in them lacks."""
    assert 20 <= len(GGUFFile.open(data / "cases" / name).tensors)


def test_every_case_is_either_refused_or_opened(data):
    """No case is forgotten by the two lists above."""
    found = {path.parent.name for path in (data / "cases").glob("1*/*.gguf")}
    assert found == {name.split("/")[0] for name in [*REFUSED, *SOUND]}


def test_an_unknown_type_is_told_apart_from_damage(data):
    """A tensor type of another program is unsupported, a misfitting row is damage."""
    with pytest.raises(UnsupportedModelError):
        GGUFFile.open(data / "cases/123-unknown-quantization/model.gguf")
    with pytest.raises(GGUFError):
        GGUFFile.open(data / "cases/125-row-not-a-block-multiple/model.gguf")


def test_an_architecture_in_the_future_is_not_called_damaged(data):
    """The reader does not judge the architecture."""
    opened = GGUFFile.open(data / "cases/151-architecture-unknown/model.gguf")
    assert "llama9" == opened.metadata.text("general.architecture")
