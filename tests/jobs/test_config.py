"""Configuration files: what is read, what is refused, and in which words."""

import pytest

from cluster.errors import JobConfigError
from jobs.config import load_config
from jobs.config_errors import nearest_key

MINIMAL = "model: m.gguf\ninput: in.parquet\noutput: out\n"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a configuration of this text, in the folder of the file."""
    monkeypatch.chdir(tmp_path)

    def load(text, flags=(), settings=()):
        path = tmp_path / "job.yaml"
        path.write_text(text, encoding="utf-8")
        return load_config(path.relative_to(tmp_path), dict(flags), settings)

    return load


def refusal(load, *args, **kwargs) -> str:
    """The message with which a configuration is refused."""
    with pytest.raises(JobConfigError) as caught:
        load(*args, **kwargs)
    return str(caught.value)


def test_three_keys_are_enough(load):
    """Model, input and output are the only keys without a default."""
    config = load(MINIMAL)
    assert ("m.gguf", "in.parquet", "out") == (config.model, config.input, config.output)
    assert 128 == config.sampling.max_tokens


def test_flags_win_over_the_file_and_settings_over_flags(load):
    """Values come from the file, then the flags, then --set."""
    text = MINIMAL + "engine: {threads: 1, block_size: 8}\n"
    config = load(text, {"engine.threads": 2, "model": "n.gguf"}, ["engine.threads=3"])
    assert ("n.gguf", 3, 8) == (config.model, config.engine.threads, config.engine.block_size)


def test_settings_reach_sections_the_file_lacks(load):
    """A dotted key makes its section."""
    config = load(MINIMAL, settings=["sampling.stop=[a, b]", "cluster.workers=3"])
    assert (("a", "b"), 3) == (config.sampling.stop, config.cluster.workers)


def test_null_max_tokens_is_no_limit(load):
    """In the job's defaults null is a value: up to the end of the context."""
    assert load(MINIMAL + "sampling: {max_tokens: null}\n").sampling.max_tokens is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("engine: {thread: 2}", "unknown key engine.thread; did you mean engine.threads?"),
        ("max_tokens: 5", "unknown key max_tokens; did you mean sampling.max_tokens?"),
        ("workers: 5", "unknown key workers; did you mean cluster.workers?"),
        ("engin: {threads: 2}", "unknown key engin; did you mean engine?"),
        ("zebra: 1", "unknown key zebra; docs/options.md lists the keys"),
        ("engine: {threads: two}", "engine.threads: found 'two' (str), expected a valid integer"),
        ("engine: 3", "engine: found 3 (int), expected a valid dictionary"),
        ("sampling: {temperature: -1}", "sampling: temperature: -1 is not in [0, 100]"),
        ("sampling: {temprature: 1}", "did you mean temperature?"),
        ("sampling: {temperature: null}", "sampling: temperature: null is not a number"),
        ("cluster: {workers: 0}", "cluster.workers: found 0 (int), expected greater than"),
        ("model: 3", "key 'model' stands there twice"),
    ],
)
def test_a_bad_line_is_named(load, line, message):
    """Unknown keys come with the nearest valid one, wrong values with what was expected."""
    text = refusal(load, MINIMAL + line + "\n")
    assert text.startswith("job.yaml")
    assert message in text
    assert "\n" not in text


def test_all_problems_are_named_at_once(load):
    """One look at the message is enough to mend the file."""
    text = refusal(load, "modle: x\ninput: in.parquet\n")
    assert "key model is missing" in text
    assert "key output is missing" in text
    assert "unknown key modle; did you mean model?" in text


def test_a_bad_flag_is_blamed_on_the_command_line(load):
    """The file is not blamed for what the user typed."""
    text = refusal(load, MINIMAL, settings=["engine.threads=two"])
    assert text.startswith("command line: engine.threads: found 'two'")


@pytest.mark.parametrize("setting", ["engine.threads", "=3", "sampling.stop=[a"])
def test_a_setting_is_key_and_yaml_value(load, setting):
    """A malformed --set is refused and shown."""
    assert refusal(load, MINIMAL, settings=[setting]).startswith("--set ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"model: [1, 2", "not valid YAML"),
        (b"- a\n- b\n", "found a list, expected `key: value` lines"),
        (b"", "found nothing"),
        (b"model: caf\xe9\n", "not UTF-8"),
        (b"model: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path, content, message):
    """Whatever the file holds, the answer is one line that names it."""
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    with pytest.raises(JobConfigError, match=r"job\.yaml") as caught:
        load_config(path, {})
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    """No such file is a configuration error."""
    with pytest.raises(JobConfigError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "nowhere.yaml", {})


def test_nearest_key_knows_when_there_is_none():
    """A guess that is far off would mislead."""
    assert nearest_key("zebra", ["engine.threads", "model"]) is None
