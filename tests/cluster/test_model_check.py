import shutil

import pytest

from cluster.dataset import InputDataset
from cluster.input_columns import InputColumns
from cluster.job import Job
from cluster.model_check import check_model
from worker.engine.config import EngineConfig
from worker.errors import EngineConfigError, GGUFError, ModelError
from worker.model_source import model_sha256


def check(model, source, **engine):
    """Check a model for an input."""
    job = Job(input=str(source), output="out", model=str(model), engine=EngineConfig(**engine))
    return check_model(job, InputDataset.open(str(source), InputColumns()))


def test_messages_without_any_template_are_refused(data):
    """The file, the key and the column are named, and both ways out."""
    case = data / "cases/315-no-template"
    with pytest.raises(ModelError) as caught:
        check(case / "model.gguf", case / "rows.parquet")
    names = ["model.gguf", "tokenizer.chat_template", "messages", "engine.chat_template", "prompt"]
    assert [] == [name for name in names if name not in str(caught.value)]


def test_a_template_of_the_job_will_do(data):
    """A template in the settings replaces what the file lacks."""
    case = data / "cases/315-no-template"
    model = case / "model.gguf"
    checked = check(model, case / "rows.parquet", chat_template="{{ messages[0].content }}")
    assert (str(model), model_sha256(model)) == (checked.source, checked.sha256)


def test_prompts_need_no_template(data):
    """Plain text is completed by any model."""
    check(data / "cases/chain-llama.gguf", data / "cases/rows-60")


def test_a_broken_model_is_found_before_any_worker_starts(data):
    """A truncated file is refused by its header's check."""
    (model,) = (data / "cases/101-truncated-tail").glob("*.gguf")
    with pytest.raises(GGUFError, match=model.name):
        check(model, data / "cases/rows-60")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("133-head-count-missing", "llama.attention.head_count"),
        ("139-more-tokens-than-rows", "304 tokens, .* only 300 rows"),
        ("141-no-tokenizer", "tokenizer.ggml.model"),
        ("145-embedding-transposed", r"expected \[300, 64\], found \[64, 300\]"),
        ("147-block-count-huge", r"block_count is 4294967295, .* blk\.2"),
        ("151-architecture-unknown", "'llama9', .* supported: .*llama"),
    ],
)
def test_a_model_that_cannot_be_run_is_found_before_any_worker_starts(data, case, words):
    """Hyperparameters, tokenizer and architecture are judged from the file's header."""
    with pytest.raises(ModelError, match=words):
        check(data / "cases" / case / "model.gguf", data / "cases/rows-60")


def test_another_second_shard_is_another_model(data, tmp_path):
    """The hash that workers must have, and the fingerprint keeps, covers all shards."""
    case = data / "cases/131-split-complete"
    names = [f"model-0000{number}-of-00002.gguf" for number in (1, 2)]
    for name in names:
        shutil.copy(case / name, tmp_path)
    whole = check(case / names[0], data / "cases/small.parquet").sha256
    assert whole == check(tmp_path / names[0], data / "cases/small.parquet").sha256
    content = bytearray((tmp_path / names[1]).read_bytes())
    content[-1] ^= 1
    (tmp_path / names[1]).write_bytes(content)
    assert whole != check(tmp_path / names[0], data / "cases/small.parquet").sha256


def test_a_template_of_the_settings_that_does_not_compile_is_their_fault(data):
    """It is an error of the configuration, not of the model."""
    with pytest.raises(EngineConfigError, match="chat_template of the job settings, line 1"):
        check(data / "cases/chain-llama.gguf", data / "cases/small.parquet", chat_template="{{")
