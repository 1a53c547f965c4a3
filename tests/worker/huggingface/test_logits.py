"""Tiny checkpoint folders give the logits of transformers, in both compute modes."""

import numpy as np
import pytest

from tests.worker.models.feeding import logits_of
from worker.compute_config import ComputeConfig
from worker.huggingface import HuggingFaceFolder
from worker.models.registry import load_model
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .checkpoints import FOLDERS, NAMES

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def team():
    """Two threads."""
    with ThreadTeam(2) as team:
        yield team


@pytest.mark.parametrize("mode", ["f32", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_equal_the_reference(name, mode, team, tmp_path, monkeypatch):
    """Floats are packed as they are, so that int8 is as close as f32."""
    monkeypatch.setattr("worker.packed_folder.cache_folder", lambda: tmp_path / "cache")
    folder = HuggingFaceFolder.open(FOLDERS / name)
    expected = np.load(FOLDERS / name / "expected.npz")
    model = load_model(folder, ComputeConfig(mode=mode), team=team, stages=Stages())
    logits = logits_of(model, expected["ids"].tolist(), chunk=7)
    np.testing.assert_allclose(expected["logits"], logits, rtol=0, atol=TOLERANCE)
