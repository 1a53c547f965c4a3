"""The trouble cases of Parquet and Arrow input, from the files through a real engine."""

import pytest
import yaml

from cluster.dataset import InputDataset
from cluster.input_columns import InputColumns
from cluster.plan import CuttingRule, cut_shards
from cluster.reader import read_requests
from cluster.rows import requests_of
from worker.engine.completion import Completion
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

CASES = [
    "219-invalid-utf8-in-string-column",
    "401-null-prompts",
    "403-empty-prompt-with-bos",
    "405-no-rows",
    "407-dictionary-columns",
    "409-messages-as-json",
    "415-types-carried-through",
    "417-hive-folder",
    "419-odd-file-name",
    "429-sampling-params-struct",
    "431-sampling-values-out-of-range",
    "433-one-prompt-too-long",
]
# In words, some expected errors are a description and not a text.
WORDING = {
    "temperature: NaN (or: invalid JSON)": "temperature: NaN",
    "max_tokens: -1 (or unlimited, if documented)": "max_tokens: -1",
    "prompt too long: its token count and the limit 256": "prompt too long: 2702 tokens",
    "messages: invalid JSON (with position)": "at position",
}


def completions(folder, run):
    """All rows of the case, in row order, in shards of two rows."""
    dataset = InputDataset.open(str(folder / run["input"]), InputColumns())
    defaults = SamplingParams(max_tokens=run["job"]["max_tokens"])
    shards = cut_shards(
        read_requests(dataset), CuttingRule(2, 1 << 20, 1000), [range(dataset.num_rows)]
    )
    rows = [row for s in shards for row in requests_of(s.payload, s.first_row, defaults)]
    engine = Engine.from_gguf(folder / run["model"])
    found = engine.generate(row for row in rows if isinstance(row, Request))
    found += [row for row in rows if isinstance(row, Completion)]
    return sorted(found, key=lambda completion: completion.row_id)


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_its_expected_rows_and_errors(data, name):
    """Completions, finish reasons, token counts and row errors are those of the case."""
    folder = data / "cases" / name
    case = yaml.safe_load((folder / "case.yaml").read_text())
    found = completions(folder, case["run"])
    errors = case["expected"].get("row_errors", {})
    assert sorted(errors) == [c.row_id for c in found if c.error is not None]
    for row, text in errors.items():
        assert WORDING.get(text, text) in found[row].error
    for row, expected in enumerate(case["expected"]["rows"].items()):
        key, values = expected
        completion = found[key if isinstance(key, int) else row]
        assert values.get("completion", completion.text) == completion.text
        assert values.get("finish_reason", completion.finish_reason) == completion.finish_reason
        assert values.get("prompt_tokens") in (None, len(completion.prompt_token_ids))
        assert values.get("completion_tokens") in (None, len(completion.token_ids))
