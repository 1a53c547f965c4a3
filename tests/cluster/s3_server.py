"""An object store that speaks S3, on this machine alone, for tests."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from time import monotonic, sleep

from cluster import lease
from cluster.location import location

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own for each test."""

    port: int
    name: str

    def uri(self, key=""):
        """The URI of a key."""
        options = f"endpoint_override=127.0.0.1:{self.port}&scheme=http"
        return f"s3://{self.name}/{key}?{options}"

    def path(self, key=""):
        """What the code under test makes of that URI."""
        return location(self.uri(key))

    def names(self, key=""):
        """Names right below a folder, sorted; folders' markers left out."""
        return [path.name for path in self.path(key).iterdir() if path.name]

    def upload(self, folder, key):
        """Copy the files of a local folder."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.path(f"{key}/{file.relative_to(folder).as_posix()}").put(file.read_bytes())

    def parts(self, key):
        """Name to bytes of all parts."""
        return {path.name: path.read_bytes() for path in self.path(key).glob("part-*.parquet")}


@contextmanager
def s3_server():
    """A server in a process of its own; yields a function that makes buckets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port, server)
            numbers = count()

            def make_bucket():
                bucket = Bucket(port, f"bucket-{next(numbers)}")
                place = location(bucket.uri() + "&allow_bucket_creation=true")
                place.store.files.create_dir(bucket.name)
                return bucket

            yield make_bucket
        finally:
            server.kill()


def _wait_for(port, server):
    deadline = monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert server.poll() is None, "the server of moto did not start; is moto installed?"
            assert monotonic() < deadline
            sleep(0.05)


def use_credentials():
    """Let pyarrow find the server's credentials."""
    os.environ.update(CREDENTIALS)


def be_quick(set_value):
    """Let drivers be found dead within three seconds."""
    for name, value in {"RENEW_S": 0.1, "LOOK_S": 0.05, "SILENT_LOOKS": 60, "TRUST_S": 1.5}.items():
        set_value(lease, name, value)
