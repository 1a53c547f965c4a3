import gc
from collections import deque
from pathlib import Path
from time import monotonic

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cluster import driver as driver_module
from cluster.driver import Driver
from cluster.errors import (
    InputError,
    JobConfigError,
    JobStoppedError,
    RowErrorsError,
)
from cluster.job import Job
from cluster.progress import Phase
from cluster.run_job import run_job
from cluster.software import own_software
from cluster.summary import FinishedWithErrors
from kvpool.errors import PoolSizeError
from tests.cluster.fake_job import run_fake_job
from tests.cluster.fake_pool import FakePool
from worker.errors import GGUFError


@pytest.fixture
def run(data, tmp_path):
    """Run a job on a fake pool; returns summary, output folder and all progress."""

    def run(pool, case="rows-60", workers=2, on_progress=None, **config):
        told = []

        def progress(state):
            told.append(state)
            if on_progress is not None:
                on_progress(state)

        output = tmp_path / "out"
        source = data / "cases" / case
        summary = run_fake_job(source, output, pool, workers=workers, progress=progress, **config)
        return summary, output, told

    return run


def ids(folder):
    """The ids in the output, in order."""
    return ds.dataset(folder).to_table()["id"].to_pylist()


ROWS_60 = [f"row {i:02d}" for i in range(60)]


def test_a_job_ends_with_all_rows_statistics_and_a_summary(run):
    """All rows once, in order; totals of parts, workers and rows agree."""
    summary, folder, told = run(FakePool())
    assert ROWS_60 == ids(folder)
    assert (60, 0, 1, 60) == (
        summary.num_rows,
        summary.num_errors,
        summary.num_parts,
        summary.generated_tokens,
    )
    assert 60 == sum(worker.rows for worker in summary.workers)
    assert 0 < min(worker.rows for worker in summary.workers)
    assert summary.ttft_p50_s == pytest.approx(0.25, rel=0.02)
    rows = pq.read_table(folder / "_stats/rows.parquet")
    assert list(range(60)) == rows["row_id"].to_pylist()
    assert 60 == sum(pq.read_table(folder / "_stats/workers.parquet")["rows"].to_pylist())
    assert (folder / "_SUCCESS").exists()
    assert [Phase.CHECKING, Phase.STARTING, Phase.RUNNING, Phase.FINISHING] == list(
        dict.fromkeys(state.phase for state in told)
    )


def test_every_worker_tells_at_the_start_what_its_kv_pool_holds(run):
    """One note a worker, before the first row; a replacement's pool is like the others'."""
    _, _, told = run(FakePool(losses={"worker-0": 2}))
    notes = {state.note: state.phase for state in told if state.note and "lost" not in state.note}
    expected = {f"worker-{i} on here: KV pool of 9 tokens": Phase.STARTING for i in range(2)}
    assert expected == notes


def test_what_a_worker_notes_is_told_with_its_node(run, monkeypatch):
    """Memory that runs short, above all."""
    monkeypatch.setattr(driver_module, "_REPORT_EVERY_S", 0.0)
    pool = FakePool()
    pool.notes = ["memory runs short"]
    _, _, told = run(pool, workers=1)
    assert "worker-0 on here: memory runs short" in {state.note for state in told}


def test_a_lost_workers_shards_are_done_again_and_it_is_replaced(run):
    """No row is lost or doubled; the loss is in statistics and progress."""
    summary, folder, told = run(FakePool(losses={"worker-0": 2, "worker-1": 1}))
    assert ROWS_60 == ids(folder)
    assert 4 == len(summary.workers)
    assert {"worker-0", "worker-1"} == {w.worker_id for w in summary.workers if w.lost}
    notes = [state.note for state in told if state.note]
    assert [False, False, True, True] == ["killed" in note for note in notes]
    attempts = pq.read_table(folder / "_stats/rows.parquet")["attempts"].to_pylist()
    assert 2 == max(attempts)
    workers = pq.read_table(folder / "_stats/workers.parquet").to_pylist()
    assert "killed" in {worker["loss_reason"] for worker in workers}


def test_the_same_rows_have_the_same_checksum_and_part_hash_on_any_pool(run, tmp_path):
    """One worker, or five of which three die: equal checksum, equal part."""
    one, folder, _ = run(FakePool(), workers=1)
    first = (folder / "part-00000.parquet").read_bytes()
    folder.rename(tmp_path / "first")
    losses = {"worker-1": 1, "worker-3": 1, "worker-5": 2}
    five, folder, _ = run(FakePool(losses=losses), workers=5)
    assert (one.checksum, first) == (five.checksum, (folder / "part-00000.parquet").read_bytes())


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("poison", [{17}, {0, 1, 59}])
def test_a_row_that_kills_its_workers_is_found_and_the_others_are_done(run, workers, poison):
    """It becomes a row error with nothing of the run in it; neighbours are as good as without."""
    pool = FakePool(poison=poison)
    summary, folder, _ = run(pool, workers=workers, shard_rows=16)
    table = ds.dataset(folder).to_table()
    assert ROWS_60 == table["id"].to_pylist()
    errors = {i: text for i, text in enumerate(table["error"].to_pylist()) if text}
    assert poison == set(errors)
    died = "the worker died 3 times (max_attempts) while it worked on this row alone"
    assert {died} == set(errors.values())
    assert len(poison) == summary.num_errors
    alone = [sent for sent in pool.sent if sent.shard.num_rows == 1]
    assert 3 * len(poison) <= sum(set(sent.shard.rows) <= poison for sent in alone)


def test_rows_that_kill_workers_count_for_max_errors(run):
    """One more than allowed ends the job with the count and the reason."""
    with pytest.raises(RowErrorsError, match="max_errors is 1; the first: the worker died 3"):
        run(FakePool(poison={3, 40}), max_errors=1)


def test_workers_that_die_at_once_are_replaced_a_bounded_number_of_times(run):
    """Nothing was committed between: it is not a row's fault."""
    losses = {f"worker-{i}": 1 for i in range(40)}
    with pytest.raises(JobStoppedError, match=r"no worker is left after 11 .* one after the other"):
        run(FakePool(losses=losses), workers=1)


def test_a_hung_worker_is_replaced_and_its_late_result_refused(run):
    """No step for stall_timeout_s while it has shards: others do them, nothing is doubled."""
    pool = FakePool(hung={"worker-0"})
    summary, folder, told = run(pool, workers=1, stall_timeout_s=0.5)
    assert ROWS_60 == ids(folder)
    assert [True, False] == [worker.lost for worker in summary.workers]
    assert any("no progress for 0.5 s (stall_timeout_s)" in (s.note or "") for s in told)


def test_a_worker_that_hangs_while_it_loads_is_replaced(run):
    """Its CPU seconds do not grow."""
    pool = FakePool(loads=[{}, None])
    summary, folder, _ = run(pool, stall_timeout_s=0.5, start_timeout_s=0.1)
    assert ROWS_60 == ids(folder)
    assert 60 == summary.num_rows


def test_idle_workers_take_over_what_a_hung_one_holds(run):
    """Once no shard is left, others get copies: the job ends before anybody is given up."""
    summary, folder, _ = run(FakePool(hung={"worker-0"}))
    assert ROWS_60 == ids(folder)
    assert [False, False] == [worker.lost for worker in summary.workers]


def test_nodes_that_join_get_a_worker_each(run, monkeypatch):
    """One worker a node: those that come later work too."""
    monkeypatch.setattr(driver_module, "_REPORT_EVERY_S", 0.0)
    pool = FakePool()

    def join(state):
        if state.rows_done:
            pool.nodes = 3

    summary, folder, _ = run(
        pool, case="421-one-row-group/rows.parquet", workers=None, on_progress=join
    )
    assert list(range(3000)) == ids(folder)
    assert 3 == len(summary.workers)
    assert all(worker.rows for worker in summary.workers)


@pytest.mark.parametrize("refusal", ["memory", "arithmetic", "version", "room"])
def test_a_late_joiner_that_cannot_work_is_left_out(run, refusal, monkeypatch):
    """One line says why; it is not tried again and again."""
    monkeypatch.setattr(driver_module, "_REPORT_EVERY_S", 0.0)
    pool = FakePool()
    for name, answers in (REFUSALS | LATE_REFUSALS)[refusal].items():
        setattr(pool, name, [{}, *answers])

    def join(state):
        if state.rows_done:
            pool.nodes = 2

    case = "421-one-row-group/rows.parquet"
    summary, folder, told = run(pool, case=case, workers=None, on_progress=join)
    assert list(range(3000)) == ids(folder)
    assert [False, True] == [worker.lost for worker in summary.workers]
    assert 1 == sum("left out" in (state.note or "") for state in told)


def test_without_any_worker_the_job_waits_and_then_stops(run):
    """It says so; the reason is on record."""
    pool = FakePool(losses={"worker-0": 3}, never={"worker-1"})
    notes = []
    with pytest.raises(JobStoppedError, match=r"no worker for 0\.5 s \(no_worker_timeout_s\)"):
        run(pool, workers=1, no_worker_timeout_s=0.5, on_progress=lambda s: notes.append(s.note))
    assert "no worker is left; waiting up to 0.5 s for one" in notes


def test_no_worker_left_is_a_stop_that_keeps_what_is_done(run):
    """With restarts used up and nobody alive, the job stops and says why."""
    with pytest.raises(JobStoppedError, match=r"no worker is left.*killed"):
        run(FakePool(losses={"worker-0": 1, "worker-1": 1}), max_worker_restarts=0)


def test_a_worker_lost_over_its_last_report_does_not_matter(run):
    """All rows are committed then: the job is done, nobody is started, the loss is on record."""
    pool = FakePool()

    def doom(state):
        if state.phase is Phase.FINISHING:
            pool.dying = {"worker-0"}

    summary, folder, _ = run(pool, on_progress=doom)
    assert ROWS_60 == ids(folder)
    assert [("worker-0", True), ("worker-1", False)] == [
        (worker.worker_id, worker.lost) for worker in summary.workers
    ]


@pytest.mark.parametrize("name", own_software())
def test_each_difference_in_software_is_refused_with_both_values(run, name):
    """Node, what is there and what is here; before the model is loaded."""
    pool = FakePool(identities=[{}, {"node": "mac-2", name: "other"}])
    own = own_software()[name]
    with pytest.raises(JobConfigError) as caught:
        run(pool)
    assert f"node mac-2: {name} is other there and {own} at the driver; " in str(caught.value)


REFUSALS = {
    "memory": {"loads": [{"error": "the KV pool needs 9 bytes", "error_class": "PoolSizeError"}]},
    "arithmetic": {"loads": [{"numerics": "other"}]},
    "version": {"identities": [{"tokenmill": "9.9"}]},
}
LATE_REFUSALS = {
    "room": {"identities": [{"node": "there"}], "loads": [{"reserved_bytes": 10}]},
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_replacement_that_cannot_work_counts_as_lost(run, refusal):
    """Rows are committed by then: whatever is wrong with the newcomer, another one is tried."""
    pool = FakePool(losses={"worker-0": 2})
    for name, answers in REFUSALS[refusal].items():
        setattr(pool, name, [{}, *answers])
    summary, folder, _ = run(pool, workers=1)
    assert ROWS_60 == ids(folder)
    assert [True, True, False] == [worker.lost for worker in summary.workers]


def test_replacements_that_never_work_stop_the_job(run):
    """After max_worker_restarts of them the job stops, and the reason is the last one's."""
    error = {"error": "the KV pool needs 9 bytes", "error_class": "PoolSizeError"}
    pool = FakePool(loads=[{}, error, error], losses={"worker-0": 2})
    with pytest.raises(JobStoppedError, match=r"no worker is left after 3 .*needs 9 bytes"):
        run(pool, workers=1, max_worker_restarts=2)
    assert [] == pool.living


def test_a_worker_of_another_version_is_refused_by_node(run, tmp_path):
    """Both versions and the node are named, nothing is written."""
    pool = FakePool(identities=[{}, {"node": "mac-2", "tokenmill": "9.9"}])
    with pytest.raises(
        JobConfigError, match=r"mac-2: tokenmill is 9\.9 there and .* install the same"
    ):
        run(pool)
    assert not (tmp_path / "out").exists()
    assert [] == pool.sent


def test_a_node_that_lacks_the_model_gets_it_from_the_driver(run):
    """Once, and the job says which node and why."""
    pool = FakePool(loads=[{"lacks_model": "m.gguf: there is no such file"}])
    summary, folder, told = run(pool)
    assert ROWS_60 == ids(folder)
    assert 1 == len(pool.models_sent)
    worker_id = pool.models_sent[0]
    note = f"{worker_id} on here lacks the model (m.gguf: there is no such file); sending it"
    assert 1 == sum(state.note == note for state in told)
    assert [False, False] == [worker.lost for worker in summary.workers]


def test_the_start_waits_as_long_as_a_model_is_on_its_way(run, monkeypatch):
    """A slow network is no worker that never comes; when nothing arrives any more, it is."""
    monkeypatch.setattr(driver_module, "_REPORT_EVERY_S", 0.05)
    pool = FakePool(loads=[None])
    began = monotonic()

    def arrive(_):
        if monotonic() - began < 1.5:
            pool.arrived += 1

    with pytest.raises(JobStoppedError, match=r"no worker was ready.*start_timeout_s is 0\.5"):
        run(pool, workers=1, on_progress=arrive, start_timeout_s=0.5, stall_timeout_s=30.0)
    assert monotonic() - began > 1.5


def test_workers_that_compute_differently_are_refused(run):
    """Two numerics identities in one pool would make rows depend on where they are done."""
    loads = [{"numerics": "accelerate"}, {"numerics": "openblas"}]
    with pytest.raises(JobConfigError, match=r"openblas|accelerate") as caught:
        run(FakePool(loads=loads))
    assert "openblas" in str(caught.value)
    assert "accelerate" in str(caught.value)


@pytest.mark.parametrize("kind", [GGUFError, PoolSizeError])
def test_what_is_wrong_with_the_model_comes_back_as_its_own_error(run, kind):
    """An error of a worker's load keeps its class and message and names a remote node."""
    answer = {"error": "model.gguf: tensor x is missing", "error_class": kind.__name__}
    with pytest.raises(kind, match=r"node here: model\.gguf: tensor x is missing"):
        run(FakePool(loads=[answer]))


def test_workers_that_fit_one_by_one_and_not_together_are_refused(run, tmp_path):
    """Before any row; node, needed and available bytes and the settings to lower are named."""
    pool = FakePool(loads=[{"reserved_bytes": 6}, {"reserved_bytes": 5}])
    with pytest.raises(JobConfigError, match=r"node here: not enough memory.*need 11 bytes, 9 are"):
        run(pool)
    assert ([], []) == (pool.sent, pool.living)
    assert not (tmp_path / "out").exists()


def test_workers_on_two_nodes_each_have_their_nodes_memory(run):
    """What fits each node is fine, whatever the sum."""
    loads = [{"reserved_bytes": 6}, {"reserved_bytes": 6}]
    summary, _, _ = run(FakePool(identities=[{}, {"node": "there"}], loads=loads))
    assert 60 == summary.num_rows


def test_a_replacement_is_not_measured_against_what_living_workers_took(run):
    """Their pools are filled by then: memory that is no longer available is not missing."""
    loads = [{"reserved_bytes": 4}, {"reserved_bytes": 4}, {"reserved_bytes": 4}]
    loads[2]["available_bytes"] = 5
    summary, _, _ = run(FakePool(loads=loads, losses={"worker-0": 2}))
    assert [True, False, False] == [worker.lost for worker in summary.workers]


def test_too_many_row_errors_end_the_job(run):
    """max_errors: the count, the limit and a first reason are named."""
    with pytest.raises(RowErrorsError, match="max_errors is 0; the first: prompt is null"):
        run(FakePool(), case="401-null-prompts/rows.parquet", max_errors=0)


def test_row_errors_are_data_unless_told_otherwise(run):
    """By default the job is done; the failed rows say why."""
    summary, folder, _ = run(FakePool(), case="401-null-prompts/rows.parquet")
    assert (6, 2) == (summary.num_rows, summary.num_errors)
    table = ds.dataset(folder).to_table()
    assert [None, "prompt is null"] == table["error"].to_pylist()[:2]
    assert ["stop", "error"] == table["finish_reason"].to_pylist()[:2]
    assert [None, None] == [
        table[c].to_pylist()[1] for c in ("generated_text", "num_prompt_tokens")
    ]


def test_fail_on_errors_fails_after_all_rows_are_done(run):
    """The run is complete and the summary there, yet it is an error."""
    with pytest.raises(FinishedWithErrors, match="2 of them failed") as caught:
        run(FakePool(), case="401-null-prompts/rows.parquet", fail_on_errors=True)
    assert (Path(caught.value.summary.output) / "_SUCCESS").exists()


def test_an_empty_input_is_a_finished_job(run):
    """Zero rows: a readable part, statistics of zero rows, no division by zero."""
    summary, folder, _ = run(FakePool(), case="405-no-rows/rows.parquet")
    assert (0, 1) == (summary.num_rows, summary.num_parts)
    assert 0 == pq.read_table(folder / "_stats/rows.parquet").num_rows
    assert 0 == ds.dataset(folder).count_rows()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_stops_the_job_and_keeps_what_is_done(run, tmp_path, name):
    """The message has signal, rows done and folder; workers are ended, after a word on progress."""
    import signal

    pool, notes = FakePool(), []

    def send(state):
        if state.note:
            notes.append((state.note, bool(pool.living)))
        elif state.rows_done:
            signal.raise_signal(signal.Signals[name])

    with pytest.raises(JobStoppedError, match=rf"stopped by {name}: \d+ of 60 rows are done"):
        run(pool, on_progress=send)
    assert [] == pool.living
    *starts, (note, workers_lived) = notes
    assert [True, True] == ["KV pool" in start for start, _ in starts]
    assert (note.startswith(f"{name} came"), workers_lived) == (True, True)
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert any((tmp_path / "out" / "_shards").iterdir())


def test_three_workers_share_one_row_group(run):
    """3000 rows of a single row group: every worker has a share, every id is there once."""
    summary, folder, _ = run(FakePool(), case="421-one-row-group/rows.parquet", workers=3)
    assert list(range(3000)) == ids(folder)
    assert 500 < min(worker.rows for worker in summary.workers)


@pytest.mark.parametrize("source", ["", "*", "**/*.parquet", "*/part-*", "o[tu]*"])
def test_an_output_in_the_input_is_refused(tmp_path, source):
    """Its parts would silently be input of the next run, of a folder or of a pattern."""
    job = Job(input=str(tmp_path / source), output=str(tmp_path / "out"), model="m.gguf")
    with pytest.raises(JobConfigError, match="lies in the input"):
        run_job(job, lambda _: None)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("source", ["*.parquet", "in/*", "*/rows-*", "[!o]*/**"])
def test_an_output_beside_what_a_pattern_takes_is_fine(tmp_path, source):
    """The next step finds that there is no such input."""
    job = Job(input=str(tmp_path / source), output=str(tmp_path / "out"), model="m.gguf")
    with pytest.raises(InputError, match="no Parquet files"):
        run_job(job, lambda _: None)


def test_a_wrong_column_is_found_before_the_model_is_touched(data, tmp_path):
    """Who mistypes a column need not wait for a model, or have one."""
    job = Job(
        input=str(data / "cases/small.parquet"),
        output=str(tmp_path / "out"),
        model=str(tmp_path / "nowhere.gguf"),
        prompt_column="nothere",
    )
    with pytest.raises(JobConfigError, match="nothere"):
        run_job(job, lambda _: None)
    assert not (tmp_path / "out").exists()


def test_a_bad_data_page_keeps_what_is_committed(run, tmp_path):
    """The footer is sound and the first row groups too: file and row group are named."""
    table = pa.table({"id": range(600), "prompt": [f"row {i}" for i in range(600)]})
    source = tmp_path / "rows.parquet"
    pq.write_table(table, source, row_group_size=200, compression="none", use_dictionary=False)
    content = bytearray(source.read_bytes())
    at = pq.read_metadata(source).row_group(2).column(1).data_page_offset
    content[at : at + 8] = b"\xff" * 8
    source.write_bytes(content)
    with pytest.raises(InputError, match=r"rows\.parquet: row group 2 "):
        run(FakePool(), case=source, part_rows=20)
    assert ids(tmp_path / "out") == list(range(20 * len(list((tmp_path / "out").glob("part-*")))))
    assert 0 < ds.dataset(tmp_path / "out").count_rows() < 400


def test_the_drivers_memory_does_not_grow_with_the_rows(run, monkeypatch):
    """3000 rows pass; the driver's own objects hold a few shards' and parts' worth of values."""
    from cluster import run_job as module

    drivers, sizes = [], []

    def make(**arguments):
        drivers.append(Driver(**arguments))
        return drivers[0]

    monkeypatch.setattr(module, "Driver", make)
    run(
        FakePool(),
        case="421-one-row-group/rows.parquet",
        on_progress=lambda _: sizes.append(num_values(drivers[0]) if drivers else 0),
        part_rows=100,
    )
    assert 100 < max(sizes) < 1000


def num_values(root):
    """Values reachable from an object by containers and by objects of the cluster package."""
    seen, waiting = {}, [root]
    while waiting:
        value = waiting.pop()
        own = type(value).__module__.startswith("cluster.")
        if id(value) not in seen and (own or isinstance(value, dict | list | deque | tuple | set)):
            waiting += gc.get_referents(value)
        seen[id(value)] = value
    return len(seen)
