"""``tokenmill bench-prefix``: the same tokens on both sides, and what is computed counted."""

import json
from pathlib import Path

import pytest

from jobs.cli import app

TINY = Path(__file__).parents[1] / "data" / "tiny" / "llama" / "llama-Q4_1.gguf"
SIZES = ["--rows", "20", "--prefix", "40", "--own", "5", "--ntg", "3", "--npl", "4"]


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        app(["bench-prefix", str(TINY), *arguments])
    return end.value.code, capsys.readouterr()


def test_reuse_computes_the_prefix_once(capsys):
    """Without reuse all prompt tokens are computed; with it the shared ones hardly."""
    code, printed = _run(capsys, *SIZES, "-o", "json")
    found = json.loads(printed.out)
    assert code == 0
    assert found["computed_without"] == 20 * 45
    # Whole blocks are shared, 32 of the 40 tokens; the first four rows may come at once.
    assert 20 * 13 + 32 <= found["computed_with"] <= 16 * 13 + 4 * 45
    assert found["speedup"] == found["rows_per_s_with"] / found["rows_per_s_without"]
    assert found["pool_bytes"] > 0


def test_table_names_model_batch_threads_and_the_prediction(capsys):
    """What a reader needs to repeat the figure."""
    code, printed = _run(capsys, *SIZES, "--threads", "1")
    assert code == 0
    first, *_, speed, pool = printed.out.splitlines()
    assert first == (
        "llama-Q4_1.gguf: 20 rows, 40 shared and 5 own prompt tokens, 3 generated, B 4, 1 threads, "
        "int8"
    )
    assert "x the rows/s; " in speed
    assert "saved prompt tokens" in speed
    assert pool.startswith("KV pool")


def test_rows_longer_than_the_context_are_refused(capsys):
    """One line with both numbers, exit code 2."""
    code, printed = _run(capsys, "--prefix", "100000")
    assert code == 2
    assert "a row needs 100056 tokens, the model's context is" in printed.err
