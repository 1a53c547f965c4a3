import pytest
from pydantic import ValidationError

from cluster.config import ClusterConfig
from cluster.optional_column import OptionalColumn


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", True),
        ("workers", "2"),
        ("workers", 2.0),
        ("fail_on_errors", 1),
        ("fail_on_errors", "yes"),
        ("start_timeout_s", "60"),
        ("output_prefix", 1),
        ("max_n", True),
        ("max_n", "2"),
        ("max_n", 0),
        ("output_columns", ["token"]),
        ("output_columns", "logprobs"),
        ("output_columns", [1]),
    ],
)
def test_a_value_of_another_type_is_refused(name, value):
    """Nothing is guessed: true is not 1 and '2' is not 2."""
    with pytest.raises(ValidationError, match=name):
        ClusterConfig(**{name: value})


def test_columns_are_a_list_of_names_as_yaml_gives_it():
    """Lists and names are all that YAML has; whole seconds are a number of seconds."""
    config = ClusterConfig(output_columns=["logprobs", "prompt_tokens"], start_timeout_s=60)
    assert {OptionalColumn.LOGPROBS, OptionalColumn.PROMPT_TOKENS} == config.output_columns
