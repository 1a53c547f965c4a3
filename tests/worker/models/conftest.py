"""A thread team, and the real models loaded once."""

import pytest

from tests.worker.models.feeding import open_model
from worker.thread_team import ThreadTeam


@pytest.fixture(scope="session")
def team():
    """Two threads."""
    with ThreadTeam(2) as team:
        yield team


@pytest.fixture(scope="session")
def smollm2_model(smollm2, team):
    """SmolLM2 with all weights in the cache."""
    return open_model(smollm2, team)


@pytest.fixture(scope="session")
def gemma3_model(gemma3_270m, team):
    """Gemma 3 270M with all weights in the cache."""
    return open_model(gemma3_270m, team)
