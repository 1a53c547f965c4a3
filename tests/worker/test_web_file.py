"""Models from web addresses; the server is one of this process."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from worker import web_file
from worker.errors import ModelSourceError
from worker.model_source import fetch_model

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Site:
    """What the server has, what it was asked, and after how many bytes it hangs up.

    Attributes:
        files: content by path.
        hang_ups: for each answer to come, how many bytes are sent; then all.
        asked: path and Range header of each request.
        ranges: whether it knows ranges.
        statuses: for each answer to come, an error's status in its place.
    """

    def __init__(self, files):
        self.files, self.hang_ups, self.asked, self.statuses = files, [], [], []
        self.ranges = True
        self.address = ""


def _handler(site):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            asked = self.headers.get("Range")
            site.asked.append((self.path, asked))
            if site.statuses:
                self.send_error(site.statuses.pop(0))
                return
            if self.path not in site.files:
                self.send_error(404)
                return
            content = site.files[self.path]
            tag = f'"{hashlib.sha256(content).hexdigest()[:8]}"'
            start = self._start(asked, tag)
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                end = len(content) - 1
                self.send_header("Content-Range", f"bytes {start}-{end}/{len(content)}")
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            count = site.hang_ups.pop(0) if site.hang_ups else len(content)
            self.wfile.write(content[start : start + count])

        def _start(self, asked, tag):
            if asked is None or not site.ranges or self.headers.get("If-Range") != tag:
                return 0
            return int(re.fullmatch(r"bytes=(\d+)-", asked)[1])

    return Handler


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site with one model, an empty cache folder, and no pauses."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(web_file, "_PAUSE_S", 0.0)
    site = Site({"/m.gguf": CONTENT})
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def files_in(folder):
    """All files, without locks."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.name for path in found if path.name != ".lock")


def test_a_model_comes_from_its_address_once(site, tmp_path):
    """Under its own name; later it needs no network."""
    path = fetch_model(f"{site.address}/m.gguf", sha256=SHA256)
    assert ("m.gguf", CONTENT) == (path.name, path.read_bytes())
    assert path == fetch_model(f"{site.address}/m.gguf")
    assert [("/m.gguf", None)] == site.asked
    assert ["m.gguf"] == files_in(tmp_path / "cache/models")


def test_a_fetch_that_breaks_off_goes_on_where_it_was(site):
    """Twice, in one call: only what is missing is asked for."""
    site.hang_ups = [5000, 6000]
    assert CONTENT == fetch_model(f"{site.address}/m.gguf", sha256=SHA256).read_bytes()
    assert [None, "bytes=5000-", "bytes=11000-"] == [asked for _, asked in site.asked]


def test_a_fetch_that_breaks_off_for_good_is_gone_on_with_by_the_next_one(site, tmp_path):
    """The message says that what came is kept."""
    site.hang_ups = [5000, 0, 0, 0, 0]
    with pytest.raises(ModelSourceError, match="5,000 bytes of it are kept") as caught:
        fetch_model(f"{site.address}/m.gguf")
    assert "\n" not in str(caught.value)
    site.asked.clear()
    assert CONTENT == fetch_model(f"{site.address}/m.gguf").read_bytes()
    assert [("/m.gguf", "bytes=5000-")] == site.asked
    assert ["m.gguf"] == files_in(tmp_path / "cache/models")


def test_a_file_that_changed_meanwhile_is_fetched_from_its_beginning(site):
    """Two versions are never joined."""
    site.hang_ups = [5000, 0, 0, 0, 0]
    with pytest.raises(ModelSourceError):
        fetch_model(f"{site.address}/m.gguf")
    site.files["/m.gguf"] = CONTENT[::-1]
    assert CONTENT[::-1] == fetch_model(f"{site.address}/m.gguf").read_bytes()


def test_a_server_without_ranges_sends_it_all_again(site):
    """Its answer of 200 to a range is the whole file."""
    site.ranges, site.hang_ups = False, [5000]
    assert CONTENT == fetch_model(f"{site.address}/m.gguf", sha256=SHA256).read_bytes()


def test_a_part_that_is_all_of_the_file_is_not_fetched_again(site, tmp_path):
    """Killed between the last byte and the rename: the server has nothing more to send."""
    target = tmp_path / "m.gguf"
    (tmp_path / ".partial-m.gguf").write_bytes(CONTENT)
    tag = f'"{SHA256[:8]}"'
    (tmp_path / ".partial-m.gguf.version").write_text(tag)
    web_file.fetch_web_file(f"{site.address}/m.gguf", target)
    assert CONTENT == target.read_bytes()
    assert [("/m.gguf", f"bytes={len(CONTENT)}-")] == site.asked


def test_a_busy_server_is_asked_again_and_a_refusal_is_not(site):
    """503 passes; 404 is told with the address."""
    site.statuses = [503, 503]
    assert CONTENT == fetch_model(f"{site.address}/m.gguf").read_bytes()
    site.asked.clear()
    with pytest.raises(ModelSourceError, match=r"/n\.gguf: cannot be fetched: HTTP 404 Not Found"):
        fetch_model(f"{site.address}/n.gguf")
    assert 1 == len(site.asked)


def test_a_wrong_hash_leaves_nothing(site, tmp_path):
    """Both hashes are named, and the next fetch begins anew."""
    with pytest.raises(ModelSourceError, match=f"SHA-256 is {SHA256}, expected {'0' * 64}"):
        fetch_model(f"{site.address}/m.gguf", sha256="0" * 64)
    assert [] == files_in(tmp_path / "cache/models")


def test_a_damaged_file_in_the_cache_is_fetched_again(site):
    """Nobody has to clean the cache by hand."""
    path = fetch_model(f"{site.address}/m.gguf")
    path.write_bytes(b"damaged")
    assert CONTENT == fetch_model(f"{site.address}/m.gguf", sha256=SHA256).read_bytes()


def test_the_first_shard_brings_the_others_along(site):
    """Beside it on the server, query and all; the first one's path is the answer."""
    names = [f"m%20x-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    site.files = {f"/q/{name}?key=1": name.encode() for name in names}
    path = fetch_model(f"{site.address}/q/{names[0]}?key=1")
    assert [f"/q/{name}?key=1" for name in names] == [asked for asked, _ in site.asked]
    assert "m x-00001-of-00003.gguf" == path.name
    assert 3 == len(files_in(path.parent))


def test_a_server_that_is_not_there_is_one_clear_line(site):
    """After some attempts."""
    with pytest.raises(ModelSourceError) as caught:
        fetch_model("http://127.0.0.1:9/m.gguf")
    assert "127.0.0.1:9/m.gguf: cannot be fetched" in str(caught.value)
    assert "\n" not in str(caught.value)
