"""``tokenmill bench-pool``: every kind of operation, in pools of three sizes."""

import json

import pytest

from jobs.bench_pool import PoolSpeed, pool_lines
from jobs.cli import app


def test_every_operation_is_measured_in_every_size(capsys):
    """JSON has a record a kind and a size."""
    with pytest.raises(SystemExit) as end:
        app(["bench-pool", "-o", "json"])
    assert end.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert len({record["operation"] for record in found}) == 5
    assert {record["num_blocks"] for record in found} == {1_000, 10_000, 100_000}
    assert len(found) == 15
    assert all(record["per_s"] > 0 for record in found)


def test_table_has_a_line_an_operation_and_a_column_a_size():
    """Figures with thousands marked."""
    speeds = [PoolSpeed("take", 10, 1234.0), PoolSpeed("take", 20, 99.0)]
    assert pool_lines(speeds) == [
        "block operations/s  10 blocks  20 blocks",
        "take                    1,234         99",
    ]
