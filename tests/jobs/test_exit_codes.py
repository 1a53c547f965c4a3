"""From an exception to the exit code and the line that the user reads."""

import pytest

from cluster.errors import ClusterError, InputError, JobConfigError, JobStoppedError, RowErrorsError
from jobs.exit_codes import exit_code_of
from jobs.failure import one_line_failures
from kvpool.errors import PoolSizeError
from worker.errors import EngineConfigError, GGUFError, ModelSourceError, UnsupportedModelError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (JobConfigError("x"), 2),
        (EngineConfigError("x"), 2),
        (PoolSizeError("x"), 2),
        (RowErrorsError("x"), 3),
        (InputError("x"), 4),
        (GGUFError("x"), 4),
        (UnsupportedModelError("x"), 4),
        (ModelSourceError("x"), 4),
        (JobStoppedError("x"), 75),
        (KeyboardInterrupt(), 75),
        (ValueError("x"), 1),
    ],
)
def test_every_kind_of_error_has_its_code(error, code):
    """The codes are those that README and docs promise."""
    assert code == exit_code_of(error)


def test_an_error_of_ours_is_one_line(capsys):
    """No traceback, nothing on standard output, the message and the code."""
    with pytest.raises(SystemExit) as caught, one_line_failures():
        raise GGUFError("m.gguf: not a GGUF file\nat all")
    assert 4 == caught.value.code
    assert ("", "tokenmill: m.gguf: not a GGUF file at all\n") == capsys.readouterr()


def test_a_fault_of_ours_shows_its_traceback(capsys):
    """Nobody can mend an internal error from one line."""
    with pytest.raises(SystemExit) as caught, one_line_failures():
        raise ZeroDivisionError("division by zero")
    assert 1 == caught.value.code
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback (most recent call last):" == lines[0]
    assert lines[-1].startswith("tokenmill: internal error")


def test_a_traceback_can_be_asked_for(capsys, monkeypatch):
    """TOKENMILL_TRACEBACK=1 shows where an ordinary error comes from."""
    monkeypatch.setenv("TOKENMILL_TRACEBACK", "1")
    with pytest.raises(SystemExit), one_line_failures():
        raise JobConfigError("no")
    assert "Traceback" in capsys.readouterr().err


def test_rows_that_are_given_up_are_no_fault_of_ours(capsys):
    """An error that was raised for the user shows no traceback, also where its code is 1."""
    with pytest.raises(SystemExit) as caught, one_line_failures():
        raise ClusterError("rows 3 to 5: given up")
    assert 1 == caught.value.code
    assert "tokenmill: rows 3 to 5: given up\n" == capsys.readouterr().err


def test_an_exit_passes_through():
    """Usage errors of the command line keep their own code."""
    with pytest.raises(SystemExit) as caught, one_line_failures():
        raise SystemExit(2)
    assert 2 == caught.value.code
