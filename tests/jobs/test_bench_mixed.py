"""``tokenmill bench-mixed``: running rows get a token in every step, whatever arrives."""

import json
from pathlib import Path

import pytest

from jobs.bench_mixed import _longest_wait
from jobs.cli import app

TINY = Path(__file__).parents[1] / "data" / "tiny" / "llama" / "llama-Q4_1.gguf"


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        app(["bench-mixed", str(TINY), *arguments])
    return end.value.code, capsys.readouterr()


def test_no_running_row_waits_longer_than_a_step_of_one_chunk(capsys):
    """Prompts of four chunks come all the time; a step is never more than a chunk."""
    sizes = ["--npl", "3", "--ntg", "40", "--long", "60", "--every", "5"]
    code, printed = _run(capsys, *sizes, "--max-num-batched-tokens", "16", "-o", "json")
    found = json.loads(printed.out)
    assert code == 0
    assert found["waits"] == 1
    assert found["most_tokens"] <= 16
    assert len(found["quiet_s"]) + len(found["busy_s"]) == 40
    assert len(found["busy_s"]) >= 8


def test_table_says_how_long_rows_waited(capsys):
    """A line for steps without a prompt and one for those beside a prompt."""
    code, printed = _run(capsys, "--npl", "2", "--ntg", "20", "--long", "30", "--every", "10")
    assert code == 0
    lines = printed.out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:4]] == ["decode alone", "beside a prompt"]
    assert lines[-1].startswith("a running row waited 1 step(s) at most")


def test_longest_wait_counts_steps_without_a_token():
    """Counts after each step: a row that stood still for two steps waited three."""
    assert _longest_wait([1, 2, 3, 4]) == 1
    assert _longest_wait([1, 2, 2, 2, 3]) == 3


def test_prompt_longer_than_the_context_is_refused(capsys):
    """One line with both numbers, exit code 2."""
    code, printed = _run(capsys, "--long", "100000")
    assert code == 2
    assert "a row needs 100001 tokens, the model's context is" in printed.err
