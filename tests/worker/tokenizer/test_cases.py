"""The trouble cases of tokenisation and chat templates, as far as prompts go."""

from datetime import datetime

import pyarrow.parquet as pq
import pytest
import yaml

from worker.engine.request import Request, RowId
from worker.errors import GGUFError, RowError
from worker.gguf import GGUFFile
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import Tokenizer

NOW = datetime(2026, 11, 29)


class Case:
    """A case's model, rows and expectations."""

    def __init__(self, data, number):
        (self.folder,) = (data / "cases").glob(f"{number}-*")
        self.case = yaml.safe_load((self.folder / "case.yaml").read_text())
        path = self.folder / self.case["run"]["model"]
        self.tokenizer = Tokenizer.from_metadata(GGUFFile.open(path).metadata)
        self.encoder = PromptEncoder.for_model(self.tokenizer, now=NOW)
        self.rows = pq.read_table(self.folder / "rows.parquet").to_pylist()

    def encode(self, row):
        """The ids of a row."""
        fields = {key: self.rows[row].get(key) for key in ("prompt", "messages")}
        return self.encoder.encode(Request(row_id=RowId(row), **fields))

    def rendered(self, row):
        """The prompt text of a row of messages."""
        return self.encoder.render(self.rows[row]["messages"])


@pytest.mark.parametrize(
    "number", [143, 201, 203, 205, 207, 211, 213, 215, 217, 309, 311, 313, 321]
)
def test_expected_ids_counts_and_texts(data, number):
    """Rows get the ids, the number of tokens and the prompt text that the case expects."""
    case = Case(data, number)
    expected = case.case["expected"]
    compared = 0
    for row, values in (expected.get("rows") or expected["options"][0]["rows"]).items():
        if "prompt_token_ids" in values:
            assert values["prompt_token_ids"] == case.encode(row)
        if "prompt_tokens" in values:
            assert values["prompt_tokens"] == len(case.encode(row))
        if "prompt_text" in values:
            assert values["prompt_text"] == case.rendered(row)
        compared += len(values.keys() & {"prompt_token_ids", "prompt_tokens", "prompt_text"})
    assert compared or number == 213


def test_no_tokenizer(data):
    """A file without tokenizer keys is refused with its name and the key (141)."""
    (path,) = (data / "cases").glob("141-*/model.gguf")
    with pytest.raises(GGUFError, match=r"model\.gguf: key tokenizer\.ggml\.model is missing"):
        Tokenizer.from_metadata(GGUFFile.open(path).metadata)


def test_a_control_token_in_a_message_stays_text(data):
    """No control id but BOS comes from a message that spells control tokens (201)."""
    ids = Case(data, 201).encode(0)
    assert [292] == [token_id for token_id in ids if 292 <= token_id <= 299]


def test_a_long_run_of_one_letter(data):
    """200,000 letters are counted exactly, in less than quadratic time (213)."""
    assert 50_001 == len(Case(data, 213).encode(1))


def test_a_character_over_four_tokens(data):
    """An emoji from four byte tokens comes with the last of them (209)."""
    detokenizer = Case(data, 209).tokenizer.detokenizer()
    pushed = [detokenizer.push(token_id) for token_id in (240, 159, 152, 128)]
    assert (["", "", "", "\U0001f600"], "") == (pushed, detokenizer.finish())


def test_a_control_token_has_no_text(data):
    """A control token in an answer adds nothing and has a name for display (221)."""
    tokenizer = Case(data, 221).tokenizer
    assert "ok" == tokenizer.decode([111, 298, 107])
    assert "<|reserved_0|>" == tokenizer.piece_text(298)


@pytest.mark.parametrize(
    ("number", "row", "words"),
    [
        (301, 0, "unsafe access"),
        (303, 0, "Range too big"),
        (305, 1, "System role not supported by this model"),
        (305, 3, "System role not supported by this model"),
        (315, 0, r"tokenizer\.chat_template"),
        (319, 0, "unsafe"),
        (319, 1, "unsafe"),
    ],
)
def test_refused_by_the_template(data, number, row, words):
    """A template that refuses, breaks out or does too much fails the row with the reason."""
    with pytest.raises(RowError, match=words):
        Case(data, number).encode(row)


def test_other_rows_of_a_template_that_refuses_some(data):
    """Rows without a system message are encoded though others are refused (305)."""
    assert "<|bos|>is it?" == Case(data, 305).rendered(0)


def test_the_date_is_the_jobs(data):
    """strftime_now tells the date that was given, whatever the clock says (307)."""
    assert "<|bos|>Today is 29 Nov 2026. is it?" == Case(data, 307).rendered(0)


def test_a_conversation_that_ends_with_the_assistant(data):
    """A new assistant turn is opened after it (317)."""
    case = Case(data, 317)
    assert case.case["expected"]["forms"][0] == case.rendered(0)


def test_messages_are_not_changed(data):
    """Neither rendering nor a refused change touches the messages (311, 313, 319)."""
    for number in (311, 313, 319):
        case, untouched = Case(data, number), Case(data, number)
        for row in range(len(case.rows)):
            try:
                case.encode(row)
            except RowError:
                assert 319 == number
        assert untouched.rows == case.rows
