"""A worker pool without Ray: workers answer at once, unless a test makes them fail."""

import random

import pyarrow as pa

from cluster.rows import requests_of
from cluster.shard_table import shard_table
from cluster.software import own_software
from cluster.worker_pool import Event, EventKind
from tests.cluster.fake_engine import FakeSnapshot, answer
from worker.engine.completion import Completion

IDENTITY = {"node": "here", "pid": 1, **own_software()}

LOADED = {
    "numerics": "fake",
    "load_s": 0.5,
    "kv_pool": "9 tokens",
    "reserved_bytes": 1,
    "available_bytes": 9,
}


class FakePool:
    """Answers in a random order; workers named in ``dying`` are lost when asked for a report.

    Args:
        identities: what the n-th worker says of itself, over IDENTITY.
        loads: what the n-th worker answers to load, over LOADED.
            None never answers.
        losses: worker ids that are lost when their n-th shard should come back, by id.
        poison: row ids that kill every worker that has one of them in work.
        hung: worker ids that load and then neither answer a shard nor get on with it.
        never: worker ids that never come up.
    """

    def __init__(self, identities=(), loads=(), losses=None, poison=(), hung=(), never=()):
        self.poison, self.hung, self.never = set(poison), set(hung), set(never)
        self.identities, self.loads, self.losses = list(identities), list(loads), losses or {}
        self.events, self.living, self.sent, self.models_sent = [], [], [], []
        self.dying = set()
        self.num_started, self.arrived, self.notes = 0, 0, []
        self.driver, self.steps, self.nodes = 1, 0, 1
        self.random = random.Random(0)

    def begin(self, spec, _num_cpus, _model, driver=1):
        """Stand for the pool that the job would make."""
        self.driver, self.spec = driver, spec
        return self

    def start_worker(self):
        """A worker that is there at once."""
        name = "worker" if self.driver == 1 else f"driver-{self.driver}-worker"
        worker_id = f"{name}-{self.num_started}"
        self.num_started += 1
        self.living.append(worker_id)
        if worker_id in self.never:
            return worker_id
        identity = IDENTITY | (self.identities.pop(0) if self.identities else {})
        self.events.append(Event(worker_id, EventKind.IDENTIFIED, identity))
        return worker_id

    def load(self, worker_id):
        """A model that is loaded at once."""
        changes = self.loads.pop(0) if self.loads else {}
        if changes is None:
            self.hung.add(worker_id)
            return
        answer = LOADED | changes
        self.events.append(Event(worker_id, EventKind.LOADED, answer))

    def send_model(self, worker_id):
        """A model that arrives at once."""
        self.models_sent.append(worker_id)
        self.load(worker_id)

    def send(self, assignment):
        """Answer the shard, or lose the worker over it."""
        self.sent.append(assignment)
        losses = self.losses.get(assignment.worker, 0)
        if losses == 1:
            self.end_worker(assignment.worker)
            self.events.append(Event(assignment.worker, EventKind.LOST, "killed"))
        self.losses[assignment.worker] = losses - 1
        if assignment.worker in self.living and self.poison & set(assignment.shard.rows):
            self.end_worker(assignment.worker)
            self.events.append(Event(assignment.worker, EventKind.LOST, "poisoned"))
        if assignment.worker in self.living and assignment.worker not in self.hung:
            payload = encoded(assignment, self.spec)
            event = Event(
                assignment.worker, EventKind.SHARD_DONE, payload, assignment.shard.first_row
            )
            self.events.append(event)

    def ask_report(self, worker_id):
        """A report that is there at once, or the loss of the worker; of a living worker alone."""
        if worker_id not in self.living:
            raise KeyError(worker_id)
        if worker_id in self.dying:
            self.end_worker(worker_id)
            self.events.append(Event(worker_id, EventKind.LOST, "killed"))
            return
        self.steps += worker_id not in self.hung
        life = 0 if worker_id in self.hung else self.steps
        totals = FakeSnapshot(prefill_tokens=7, decode_tokens=3).as_dict()
        totals |= {"elapsed_s": 1.0, "peak_rss_bytes": 1}
        report = {
            "samples": [],
            "notes": self.notes,
            "totals": totals,
            "life": life,
            "arrived": self.arrived,
        }
        self.events.append(Event(worker_id, EventKind.REPORTED, report))

    def num_nodes(self):
        """Nodes of the cluster."""
        return self.nodes

    def poll(self, _):
        """Some of the events, in any order."""
        self.random.shuffle(self.events)
        taken, self.events = self.events[:3], self.events[3:]
        return taken

    def end_worker(self, worker_id):
        """Forget a worker and what it would have said."""
        self.living.remove(worker_id)
        self.events = [event for event in self.events if event.worker_id != worker_id]

    def stop(self):
        """End all."""
        self.living.clear()


def encoded(assignment, spec):
    """What a worker sends back for a shard."""
    shard = assignment.shard
    rows = requests_of(shard.payload, shard.first_row, spec.sampling, spec.max_n)
    completions = [row if isinstance(row, Completion) else answer(row) for row in rows]
    table = shard_table(
        completions,
        shard.rows,
        worker_id=assignment.worker,
        attempt=assignment.attempt,
        optional=spec.optional,
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
