"""The prompts that the demo ships."""

import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config import load_config
from worker.model_source import DEMO_MODEL

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture
def shipped() -> pa.Table:
    """The table in the Parquet file."""
    return pq.read_table(CONFIGS / "demo-prompts.parquet")


def test_shipped_file_is_made_of_its_source(shipped):
    """Nobody edited the page without making the Parquet file anew."""
    spec = importlib.util.spec_from_file_location("make", CONFIGS / "make_demo_prompts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.demo_table().equals(shipped)


def test_at_least_two_hundred_good_rows_of_many_kinds(shipped):
    """The demo is real work: many tasks, prompts and conversations, no two alike."""
    good = [row for row in shipped.to_pylist() if row["task"] != "bad on purpose"]
    assert 200 <= len(good)
    assert 20 <= len({row["task"] for row in good})
    assert 50 <= sum(row["messages"] is not None for row in good)
    assert len(good) == len({str((row["prompt"], row["messages"])) for row in good})
    assert all((row["prompt"] is None) != (row["messages"] is None) for row in good)


def test_a_few_rows_are_bad_on_purpose(shipped):
    """The demo shows what a row error looks like."""
    assert 7 == sum(row["task"] == "bad on purpose" for row in shipped.to_pylist())


def test_the_demo_names_the_pinned_model():
    """The configuration is sound, and its model is the one whose hash is pinned."""
    config = load_config(CONFIGS / "demo.yaml", {})
    assert (DEMO_MODEL.source, DEMO_MODEL.sha256) == (config.model, config.model_sha256)
    assert 2 == config.cluster.workers
