"""Fixtures for all tests: the test data, and two real models."""

from pathlib import Path

import pytest

from worker.model_source import DEMO_MODEL, GEMMA_TEST_MODEL, fetch_model

_MODEL_FIXTURES = {"smollm2", "gemma3_270m"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the marker ``model`` to every test that uses a real model."""
    for item in items:
        if _MODEL_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.model)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with the test data."""
    return Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2 135M Instruct Q4_1, fetched once into the user's cache folder."""
    return fetch_model(DEMO_MODEL.source, sha256=DEMO_MODEL.sha256)


@pytest.fixture(scope="session")
def gemma3_270m() -> Path:
    """Gemma 3 270M Q4_K_M, fetched once into the user's cache folder."""
    return fetch_model(GEMMA_TEST_MODEL.source, sha256=GEMMA_TEST_MODEL.sha256)
