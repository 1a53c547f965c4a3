"""EngineConfig: what it refuses, and that it explains itself."""

import pytest
from pydantic import ValidationError

from worker.engine.config import EngineConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_num_seq": 4}, "max_num_seq"),
        ({"max_num_seqs": 0}, "greater than or equal to 1"),
        ({"max_num_seqs": True}, "valid integer"),
        ({"max_num_seqs": 600}, "max_num_batched_tokens 512 is less than max_num_seqs 600"),
        ({"kv_pool_bytes": 1, "kv_pool_tokens": 1}, "both|all set the pool's size; give one"),
        ({"compute": "f64"}, "'f32'"),
        ({"job_seed": -1}, "greater than or equal to 0"),
    ],
)
def test_bad_setting_is_refused(values, message):
    """The error names the setting and what is allowed."""
    with pytest.raises(ValidationError, match=message):
        EngineConfig(**values)


def test_config_cannot_be_changed():
    """Derived settings are made by replacing, never by assigning."""
    with pytest.raises(ValidationError, match="frozen"):
        EngineConfig().threads = 2


def test_every_field_is_explained():
    """Each setting has a description for the reader of the options page."""
    assert all(len(field.description or "") > 40 for field in EngineConfig.model_fields.values())
