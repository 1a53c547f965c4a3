from pathlib import Path

import pytest
import ray
import ray.exceptions

from cluster.errors import JobConfigError
from cluster.worker_pool import EventKind, Placement, WorkerPool, _Call, _reason, place_workers


@pytest.fixture
def nodes(monkeypatch):
    """Pretend that the cluster has nodes with these CPUs; a negative number is a dead node."""

    def pretend(*cpus):
        found = [{"Alive": n >= 0, "Resources": {"CPU": float(abs(n))}} for n in cpus]
        monkeypatch.setattr(ray, "nodes", lambda: found)

    return pretend


@pytest.mark.parametrize(
    ("cpus", "workers", "threads", "expected"),
    [
        ((8,), None, None, Placement(1, 8)),
        ((8,), 2, None, Placement(2, 4)),
        ((8,), 3, 1, Placement(3, 1)),
        ((8, 4), None, None, Placement(2, 4)),
        ((8, 8, 8), 4, None, Placement(4, 4)),
        ((8, 0, -8), None, None, Placement(1, 8)),
    ],
)
def test_workers_and_threads_fit_the_nodes(nodes, cpus, workers, threads, expected):
    """By default one worker a node; threads are the smallest node's CPUs shared out."""
    nodes(*cpus)
    assert expected == place_workers(workers, threads)


def test_workers_that_do_not_fit_name_what_is_needed_and_there(nodes):
    """A worker never spans two nodes: 3 threads fit once on each node of 4."""
    nodes(4, 4)
    with pytest.raises(
        JobConfigError, match="need 9 CPUs, the Ray cluster has 8 on 2 nodes, room for 2"
    ):
        place_workers(3, 3)


def test_a_cluster_without_cpus_is_refused(nodes):
    """A head that gives no CPU cannot hold a worker."""
    nodes(0)
    with pytest.raises(JobConfigError, match="no node"):
        place_workers(None, None)


def test_the_reason_of_a_death_is_one_short_line():
    """Ray's general advice is left out."""
    error = ray.exceptions.ActorDiedError()
    assert "\n" not in _reason(error)
    long = ray.exceptions.RaySystemError("end of file. Some common causes include: " + "x" * 999)
    assert "common causes" not in _reason(long)


def test_a_kill_for_memory_names_the_bytes():
    """Ray puts them among dozens of lines; what is used and what is allowed is what matters."""
    text = "1 worker(s) were killed\nOOM kill reason: Memory usage 9B exceeded threshold of 5B\nTop"
    reason = _reason(ray.exceptions.OutOfMemoryError(text))
    assert reason.startswith("killed for memory (Memory usage 9B exceeded threshold of 5B); lower")


def test_a_node_without_tokenmill_is_told_apart_from_a_death(monkeypatch):
    """The module that is missing and the way to get it are named."""
    pool = WorkerPool(spec=None, num_cpus=1, model=Path("model.gguf"))
    pool._calls = {"ref": _Call("worker-0", EventKind.IDENTIFIED)}
    missing = ModuleNotFoundError("No module named 'cluster'")
    monkeypatch.setattr(ray, "wait", lambda *_, **__: (["ref"], []))
    monkeypatch.setattr(ray, "get", _raiser(ray.exceptions.RayTaskError("f", "", missing)))
    (event,) = pool.poll(0)
    assert ("worker-0", EventKind.UNUSABLE) == (event.worker_id, event.kind)
    assert "No module named 'cluster'); install tokenmill" in event.value


def _raiser(error):
    def get(_):
        raise error

    return get
