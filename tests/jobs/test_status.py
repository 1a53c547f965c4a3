"""How a run's state is printed."""

from cluster.status import RunState, RunStatus
from jobs.status import status_lines


def test_errors_are_counted_by_kind():
    """In a line of its own, which is not there without errors."""
    lines = [
        list(
            status_lines(
                RunStatus(
                    state=RunState.COMPLETE,
                    num_rows=9,
                    rows_done=9,
                    errors=errors,
                    num_parts=1,
                    driver=None,
                )
            )
        )
        for errors in ({"worker": 2, "input": 1}, {})
    ]
    assert "errors   1 input, 2 worker" in lines[0]
    assert "rows     9 of 9 done (100.0%), 3 of them failed, 0 left" in lines[0]
    assert [line for line in lines[0] if not line.startswith("errors")][2:] == lines[1][2:]
