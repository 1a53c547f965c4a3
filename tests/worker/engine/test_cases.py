"""The trouble cases of generation (6xx) and of sampling parameters, through Engine.generate."""

import struct
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from gguf.constants import GGUFValueType

from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams
from worker.errors import ErrorKind, RowError

CASES = Path(__file__).parents[2] / "data" / "cases"
KEYS = {
    "completion": lambda c: c.text,
    "finish_reason": lambda c: str(c.finish_reason),
    "prompt_tokens": lambda c: len(c.prompt_token_ids),
    "completion_tokens": lambda c: len(c.token_ids),
    "tokens_generated": lambda c: len(c.token_ids),
}


def case_folder(number):
    """The folder of a case."""
    (folder,) = CASES.glob(f"{number}-*")
    return folder


def case_of(number):
    """case.yaml of a case."""
    return yaml.safe_load((case_folder(number) / "case.yaml").read_text())


def run_case(number, run=None, **settings):
    """Completions of a case's rows, and errors of rows that have no request, in order."""
    folder, case = case_folder(number), case_of(number)
    run = run or case["run"]
    job = run["job"]
    names = {"max_batch": "max_num_seqs", "kv_pool_tokens": "kv_pool_tokens"}
    own = {names[key]: value for key, value in job.items() if key in names}
    engine = Engine.from_gguf(
        folder / run["model"], EngineConfig(**{"threads": 1, **own, **settings})
    )
    defaults = SamplingParams(**{k: job[k] for k in ("temperature", "max_tokens") if k in job})
    table = pq.read_table(folder / run["input"])
    answers, requests = {}, []
    for row_id, row in enumerate(table.to_pylist()):
        try:
            sampling = SamplingParams.from_cell(row.get("sampling_params"), defaults)
        except RowError as error:
            answers[row_id] = str(error)
            continue
        requests.append(Request(row_id=row_id, prompt=row["prompt"], sampling=sampling))
    answers |= {c.row_id: c for c in engine.generate(requests)}
    engine.check_invariants()
    engine.close()
    return [answers[row_id] for row_id in range(table.num_rows)]


def assert_rows(number, answers):
    """Every value that case.yaml gives for its rows holds."""
    for row, values in case_of(number)["expected"]["rows"].items():
        rows = range(len(answers)) if row == "every row" else [row]
        for i in rows:
            given = {key: value for key, value in values.items() if key in KEYS}
            assert given == {key: KEYS[key](answers[i]) for key in given}, f"row {i}"


@pytest.mark.parametrize("number", [601, 603, 605, 611, 617, 619])
def test_rows_of_the_case(number):
    """Text, counts and finish reasons as case.yaml gives them."""
    assert_rows(number, run_case(number))


@pytest.mark.parametrize("number", [607, 609, 625])
@pytest.mark.parametrize("run", [0, 1])
def test_rows_of_each_run(number, run):
    """The same rows under each of the case's settings."""
    assert_rows(number, run_case(number, case_of(number)["run"]["runs"][run]))


@pytest.mark.parametrize(
    "setting",
    [
        {"max_num_seqs": 1},
        {"max_num_seqs": 8},
        {"max_num_seqs": 60},
        {"max_num_seqs": 1, "max_num_batched_tokens": 1},
        {"max_num_seqs": 7, "max_num_batched_tokens": 7},
        {"max_num_seqs": 60, "kv_pool_tokens": 96},
        {"max_num_seqs": 60, "kv_pool_tokens": 80},
        {"threads": 2},
    ],
    ids=str,
)
def test_neighbours_chunks_pools_and_threads_change_nothing(setting):
    """Case 609 under every setting; its rows have up to 68 tokens."""
    run = {**case_of(609)["run"]["runs"][0], "job": {"temperature": 0, "max_tokens": 10}}
    assert_rows(609, run_case(609, run, **setting))


def test_what_a_freed_block_holds_reaches_nobody():
    """A row whose K/V were NaN leaves them in its blocks; later rows never read them."""
    engine = Engine.from_gguf(CASES / "tiny-llama.gguf", EngineConfig(threads=1))
    requests = [
        Request(row_id=i, prompt=p, sampling=SamplingParams(max_tokens=20, logprobs=3))
        for i, p in enumerate(["world cat", "run", "hello dog the fox and the tree"])
    ]
    before = [(c.token_ids, c.logprobs) for c in engine.generate(requests)]
    for array in (*engine.kv.keys, *engine.kv.values):
        array.fill(float("nan"))
    assert [(c.token_ids, c.logprobs) for c in engine.generate(requests)] == before
    engine.close()


def test_an_absurd_context_length_costs_no_memory(tmp_path):
    """A file that claims 2,147,483,647 positions opens and answers like the one with 256."""
    claim = b"llama.context_length" + struct.pack("<I", GGUFValueType.UINT32)
    content = (CASES / "tiny-llama.gguf").read_bytes()
    assert content.count(claim + struct.pack("<I", 256)) == 1
    path = tmp_path / "model.gguf"
    path.write_bytes(
        content.replace(claim + struct.pack("<I", 256), claim + struct.pack("<I", 2**31 - 1))
    )
    sampling = SamplingParams(max_tokens=20)
    prompts = [
        Request(row_id=i, prompt=p, sampling=sampling) for i, p in enumerate(["world cat", "run"])
    ]
    answers = []
    for model in (CASES / "tiny-llama.gguf", path):
        tracemalloc.start()
        engine = Engine.from_gguf(model, EngineConfig(threads=1, kv_pool_tokens=256))
        answers.append([c.token_ids for c in engine.generate(prompts)])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        engine.close()
        assert peak < 100_000_000
    assert answers[0] == answers[1]


def test_context_edge_errors_name_both_lengths():
    """Prompts that leave no room: their length and the limit."""
    answers = run_case(601)[2:]
    errors = [answer.error for answer in answers]
    assert {ErrorKind.TOO_LONG} == {answer.error_kind for answer in answers}
    assert errors == [
        f"prompt too long: {n} tokens leave no room for a completion in a context of 64; "
        "shorten the prompt or raise max_model_len"
        for n in (64, 65, 201)
    ]


def test_end_at_once_is_an_empty_text():
    """Rows 0 and 2: an empty string, 0 tokens, no error."""
    answers = run_case(603)
    assert [(a.text, a.token_ids, a.error) for a in answers[::2]] == [("", (), None)] * 2


def test_row_larger_than_the_pool_names_need_size_and_setting():
    """Row 1 needs 100 tokens, the pool has 64."""
    answers = run_case(605)
    assert answers[1].error == (
        "needs 100 or more tokens of KV cache, the pool has 64; "
        "raise kv_pool_tokens or kv_pool_bytes"
    )
    assert [None, ErrorKind.TOO_LONG] == [answer.error_kind for answer in answers[:2]]


def test_seeds_hold_in_any_batch_and_under_preemption():
    """Case 613: the same text in all runs, equal seeds equal, shares as the model has them."""
    runs = case_of(613)["run"]["runs"]
    texts = [[a.text for a in run_case(613, run)] for run in runs]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0][:30] == texts[0][30:]
    assert len(set(texts[0])) == 30
    counts = Counter("".join(texts[0]))
    shares = {letter: counts[letter] / sum(counts.values()) for letter in "qrs"}
    assert shares == pytest.approx({"q": 0.5, "r": 0.3, "s": 0.2}, abs=0.08)


def test_endless_repetition_ends_by_length():
    """Case 615: the row that repeats itself ends at the context, the others as ever."""
    answers = run_case(615)
    assert [answers[0].text, answers[2].text] == ["yes", "yes"]
    assert answers[1].text == "z" * (64 - 3)
    assert str(answers[1].finish_reason) == "length"


def test_top_k_and_top_p_edges():
    """Case 621: each setting of 20 rows draws an exact set of letters."""
    answers = run_case(621)
    sets = [set("".join(a.text for a in answers[i : i + 20])) for i in range(0, 180, 20)]
    assert ["".join(sorted(letters)) for letters in sets] == [
        "qrs", "q", "qr", "q", "qr", "qrs", "qrs", "q", "qrs",
    ]  # fmt: skip
    assert {len(a.token_ids) for a in answers} == {10}


def test_nan_logits_are_row_errors():
    """Case 623: no text at any temperature."""
    answers = run_case(623)
    assert [(a.text, a.error.split(":")[0]) for a in answers] == [(None, "non-finite logits")] * 4
    assert [ErrorKind.NUMBERS] * 4 == [answer.error_kind for answer in answers]


def test_ties_go_to_the_lowest_id_in_a_batch_of_32():
    """Case 625, third run."""
    assert_rows(625, run_case(625, case_of(625)["run"]["runs"][2]))


def test_struct_of_sampling_parameters():
    """Case 429: null fields and a null struct are the job's defaults."""
    assert_rows(429, run_case(429))


def test_sampling_values_out_of_range():
    """Case 431: one impossible value a row; what is possible is answered."""
    answers = run_case(431)
    assert [answers[i] for i in (0, 1, 3, 5, 6, 7)] == [
        "temperature: NaN is not in [0, 100]",
        "temperature: -1 is not in [0, 100]",
        "max_tokens: -1 is not in [0, 9223372036854775807]",
        "top_p: 1.5 is not in [0, 1]",
        "top_p: -0.1 is not in [0, 1]",
        "top_k: -5 is not in [-1, 9223372036854775807]",
    ]
    assert [answers[4].text, answers[8].text] == ["yes", "yes"]
    assert (answers[2].text, str(answers[2].finish_reason)) == ("", "length")
