"""docs/kvpool.md: its examples run, and print what they say."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "kvpool.md"


def _examples():
    return [part.partition("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]


def _run(code, capsys):
    exec(compile(code, str(PAGE), "exec"), {})
    return capsys.readouterr().out.strip()


def test_the_pool_example_runs(capsys):
    """A reader who copies it gets what the comment says."""
    code, _ = _examples()
    printed = _run(code, capsys)
    assert printed == "16,384 tokens (4 rows of 4,096 tokens), 16 MiB"
    assert f"# {printed}" in code


def test_the_scheduler_example_runs(capsys):
    """Three prompts of some 100 tokens, 64 a step; each generates 20 tokens or more."""
    _, code = _examples()
    first, second, *_, last = _run(code, capsys).splitlines()
    assert first == "[(0, 64)]"
    assert second == "[(0, 36), (1, 28)]"
    assert last == "[(2, 1)]"
