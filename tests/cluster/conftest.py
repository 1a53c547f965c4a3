"""Fixtures for tests of runs in object stores."""

import pytest

from tests.cluster.s3_server import CREDENTIALS, be_quick, s3_server


@pytest.fixture(scope="session")
def make_bucket():
    """Makes buckets in a server that lives as long as the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with s3_server() as make:
            yield make


@pytest.fixture
def bucket(make_bucket, monkeypatch):
    """An empty bucket; drivers are found dead within half a second."""
    be_quick(monkeypatch.setattr)
    return make_bucket()
