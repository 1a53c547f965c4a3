"""``tokenmill status``: how far a run is."""

import json
from collections.abc import Iterator

from cluster.error_counts import in_words
from cluster.status import RunState, RunStatus, read_status

_GO_ON = "the same tokenmill run command goes on"


def print_status(output: str, *, as_json: bool) -> None:
    """Print how far the run in an output folder is.

    Raises:
        ClusterError: as ``read_status``.
    """
    status = read_status(output)
    if as_json:
        print(json.dumps(status.as_dict(), indent=1))
    else:
        print("\n".join(status_lines(status)))


def status_lines(status: RunStatus) -> Iterator[str]:
    """The status for people."""
    yield f"state    {status.state}{f', {_GO_ON}' if status.state is RunState.STOPPED else ''}"
    share = status.rows_done / status.num_rows if status.num_rows else 1.0
    yield (
        f"rows     {status.rows_done:,} of {status.num_rows:,} done ({share:.1%}), "
        f"{status.rows_failed:,} of them failed, {status.rows_left:,} left"
    )
    if status.errors:
        yield f"errors   {in_words(status.errors)}"
    yield f"parts    {status.num_parts:,} finished"
    if status.driver is not None:
        driver = status.driver
        yield (
            f"driver   {driver.driver}, on {driver.host}, pid {driver.pid}, "
            f"since {driver.started}, last note {driver.updated}"
        )
    if status.rows_per_s is not None:
        yield f"rate     {status.rows_per_s:.2f} rows/s{_left(status)}"


def _left(status: RunStatus) -> str:
    if status.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(status.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return f", about {hours}:{minutes:02d}:{seconds:02d} left"
