"""What readers see after the driver of a real job was killed or told to stop."""

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import psutil
import pyarrow.dataset as ds
import pytest

pytestmark = pytest.mark.ray

PART_ROWS = 20
SCRIPT = f"""
import sys
from cluster.config import ClusterConfig
from cluster.errors import JobStoppedError
from cluster.job import Job
from cluster.run_job import run_job
from worker.engine.config import EngineConfig

data, output = sys.argv[1:]
job = Job(
    input=data + "/cases/421-one-row-group/rows.parquet",
    output=output,
    model=data + "/cases/chain-llama.gguf",
    engine=EngineConfig(threads=1, max_num_seqs=4),
    cluster=ClusterConfig(workers=1, part_rows={PART_ROWS}),
)
try:
    run_job(job, lambda progress: print(progress.rows_done, flush=True))
except JobStoppedError as error:
    print(error, file=sys.stderr)
    sys.exit(75)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", -9), ("SIGINT", 75)])
def test_readers_see_whole_parts_alone(data, tmp_path, name, code):
    """PyArrow and DuckDB count the same rows, the first ones in order; no worker goes on."""
    output = tmp_path / "out"
    command = [sys.executable, "-c", SCRIPT, str(data), str(output)]
    root = Path(__file__).parents[2]
    # Ray's own agents notice a killed driver after a minute only; they do nothing meanwhile.
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as driver:
        while int(driver.stdout.readline()) < 5 * PART_ROWS:
            pass
        children = psutil.Process(driver.pid).children(recursive=True)
        workers = [child for child in children if child.cmdline()[0].startswith("ray::Worker")]
        driver.send_signal(signal.Signals[name])
        driver.stdout.read()
        assert code == driver.wait(timeout=60)
    ended, alive = psutil.wait_procs(workers, timeout=30)
    assert (1, []) == (len(ended), alive)
    ids = ds.dataset(output).to_table()["id"].to_pylist()
    parts = list(output.glob("part-*.parquet"))
    assert len(parts) >= 1
    assert list(range(PART_ROWS * len(parts))) == ids
    assert [(len(ids),)] == duckdb.sql(f"select count(*) from '{output}/*.parquet'").fetchall()
    assert not (output / "_SUCCESS").exists()
