"""Models that another machine sends; the sender is a stub that counts what it is asked."""

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.worker.huggingface import checkpoints
from worker.cache_content import CacheContent
from worker.errors import ModelSourceError
from worker.file_hash import file_sha256, joint_sha256
from worker.model_source import files_of_model, model_sha256
from worker.received_model import SentFile, receive_model, received_model
from worker.unfinished_downloads import unfinished_bytes

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Sender:
    """Sends files of given content in pieces; breaks after some of them."""

    def __init__(self, contents, breaks_after=None, piece=1000):
        self.contents, self.breaks_after, self.piece = contents, breaks_after, piece
        self.asked = []

    def files(self):
        """What there is."""
        return [
            SentFile(name, len(content), hashlib.sha256(content).hexdigest())
            for name, content in self.contents.items()
        ]

    def chunks(self, index, start, end):
        """Pieces, until it breaks."""
        self.asked.append((index, start))
        content = list(self.contents.values())[index]
        for number, offset in enumerate(range(start, end, self.piece)):
            if number == self.breaks_after:
                raise ModelSourceError("the sender is gone")
            yield content[offset : min(end, offset + self.piece)]


def files_in(folder):
    """All files, without locks."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not path.name.startswith(".lock"))


def test_a_model_arrives_whole_under_its_hash_and_is_there_from_then_on(cache):
    """One file in a folder named by the hash; nobody is asked a second time."""
    assert received_model(SHA256) is None
    path = receive_model(SHA256, Sender({"m.gguf": CONTENT}))
    assert cache / "received" / SHA256 / "m.gguf" == path
    assert CONTENT == path.read_bytes()
    assert [path] == files_in(cache / "received")
    again = Sender({"m.gguf": CONTENT})
    assert [path, path] == [received_model(SHA256), receive_model(SHA256, again)]
    assert [] == again.asked
    assert SHA256 == file_sha256(path)


def test_what_came_before_a_loss_is_not_sent_again(cache):
    """The partial file keeps its offset; it is no model until it is whole."""
    with pytest.raises(ModelSourceError, match="gone"):
        receive_model(SHA256, Sender({"m.gguf": CONTENT}, breaks_after=4))
    assert received_model(SHA256) is None
    assert [4000] == [path.stat().st_size for path in files_in(cache / "received")]
    assert 0 < unfinished_bytes()
    sender = Sender({"m.gguf": CONTENT})
    assert CONTENT == receive_model(SHA256, sender).read_bytes()
    assert [(0, 4000)] == sender.asked
    assert 0 == unfinished_bytes()


KILLED = f"""
import os, signal
from tests.worker.test_received_model import CONTENT, SHA256, Sender
from worker.received_model import receive_model
class Killed(Sender):
    def chunks(self, index, start, end):
        yield CONTENT[:3000]
        os.kill(os.getpid(), signal.SIGKILL)
receive_model({SHA256!r}, Killed({{"m.gguf": CONTENT}}))
"""


def test_a_killed_receiver_leaves_its_part_and_no_lock():
    """Another worker goes on where it ended."""
    root = Path(__file__).parents[2]
    assert -9 == subprocess.run([sys.executable, "-c", KILLED], cwd=root, check=False).returncode
    sender = Sender({"m.gguf": CONTENT})
    assert CONTENT == receive_model(SHA256, sender).read_bytes()
    assert [(0, 3000)] == sender.asked


@pytest.mark.parametrize("left", [b"not what was sent", b"x" * (len(CONTENT) + 1)])
def test_a_damaged_part_is_received_from_the_beginning(cache, left):
    """A part that a power cut damaged, or a longer one."""
    partial = cache / "received" / f".partial-{SHA256}" / "m.gguf"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(left)
    assert CONTENT == receive_model(SHA256, Sender({"m.gguf": CONTENT})).read_bytes()


def test_a_damaged_model_is_not_used_but_received_again():
    """Its hash is looked at each time."""
    path = receive_model(SHA256, Sender({"m.gguf": CONTENT}))
    path.write_bytes(b"damaged")
    assert received_model(SHA256) is None
    assert CONTENT == receive_model(SHA256, Sender({"m.gguf": CONTENT})).read_bytes()


def test_another_model_than_wanted_is_refused_before_it_is_sent(cache):
    """The driver's file was changed: nothing is kept of it."""
    sender = Sender({"m.gguf": CONTENT + b"!"})
    with pytest.raises(ModelSourceError, match=f"has not the SHA-256 {SHA256}"):
        receive_model(SHA256, sender)
    assert ([], []) == (sender.asked, files_in(cache / "received"))


def test_bytes_that_change_on_the_way_are_refused(cache):
    """They are not what was listed, twice."""

    class Liar(Sender):
        def chunks(self, index, start, end):
            yield b"?" * (end - start)

    with pytest.raises(ModelSourceError, match=r"m\.gguf: what the driver sends has not"):
        receive_model(SHA256, Liar({"m.gguf": CONTENT}))
    assert [] == files_in(cache / "received")


def test_all_shards_of_a_split_model_arrive():
    """The first one is the model's path; hashes are those of a split model."""
    contents = {f"m-0000{n}-of-00002.gguf": CONTENT[n:] for n in (1, 2)}
    sha256 = joint_sha256([hashlib.sha256(each).hexdigest() for each in contents.values()])
    path = receive_model(sha256, Sender(contents))
    assert "m-00001-of-00002.gguf" == path.name
    assert sha256 == model_sha256(path)


def test_a_checkpoint_folder_arrives_as_one(tmp_path):
    """Under its own name, with all that its hash is of and nothing else."""
    folder = checkpoints.copy("llama", tmp_path)
    (folder / "README.md").write_text("not of the model")
    contents = {f"llama/{path.name}": path.read_bytes() for path in files_of_model(folder)}
    path = receive_model(model_sha256(folder), Sender(contents))
    assert ("llama", model_sha256(folder)) == (path.name, model_sha256(path))
    assert len(contents) == len(files_in(path))


@pytest.mark.parametrize("name", ["../m.gguf", "/etc/m", "a/b/c", "", "a/..", "x\0"])
def test_a_name_that_leads_elsewhere_is_refused(name):
    """Files are written below the model's own folder alone."""
    with pytest.raises(ModelSourceError, match="no plain name"):
        receive_model(SHA256, Sender({name: CONTENT}))


def test_a_disk_without_room_is_refused_before_anything_is_sent(monkeypatch):
    """Needed and free bytes are named."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 5}))
    sender = Sender({"m.gguf": CONTENT})
    with pytest.raises(ModelSourceError, match="needs 10,240 more bytes and 5 are free"):
        receive_model(SHA256, sender)
    assert [] == sender.asked


def test_two_that_want_the_same_model_receive_it_once():
    """The second one waits and finds it there."""
    senders = [Sender({"m.gguf": CONTENT}) for _ in range(2)]
    threads = [threading.Thread(target=receive_model, args=(SHA256, each)) for each in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(0, 0)] == [asked for sender in senders for asked in sender.asked]


def test_received_models_and_parts_are_listed_and_can_be_removed():
    """With the name of the model; removing one makes room."""
    receive_model(SHA256, Sender({"m.gguf": CONTENT}))
    other = CONTENT + b"!"
    with pytest.raises(ModelSourceError):
        receive_model(
            hashlib.sha256(other).hexdigest(), Sender({"other.gguf": other}, breaks_after=2)
        )
    found = [entry for entry in CacheContent().entries if entry.name.startswith("received/")]
    assert [("received", "m.gguf", len(CONTENT)), ("partial", "other.gguf", 2000)] == [
        (entry.kind, entry.model, entry.n_bytes) for entry in found
    ]
    assert all(CacheContent().remove(entry) for entry in found)
    assert received_model(SHA256) is None
