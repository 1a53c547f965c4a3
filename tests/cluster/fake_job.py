"""A job on a fake pool: the real driver, plan, commit and parts, without Ray and a model."""

import contextlib
from pathlib import Path
from unittest import mock

from cluster import run_job as module
from cluster.config import ClusterConfig
from cluster.job import Job
from cluster.model_check import CheckedModel
from cluster.worker_pool import Placement
from tests.cluster.fake_pool import FakePool


def run_fake_job(
    source,
    output,
    pool=None,
    *,
    workers=2,
    progress=None,
    retried=frozenset(),
    sha256="0" * 64,
    **fields,
):
    """Run a job over a Parquet dataset; fields of ``Job`` and ``ClusterConfig`` go by their names.

    Returns the summary.
    """
    pool = pool or FakePool()
    of_job = {name: fields.pop(name) for name in list(fields) if name in Job.__dataclass_fields__}
    job = Job(
        input=str(source),
        output=str(output),
        model="model.gguf",
        cluster=ClusterConfig(workers=workers, **fields),
        **of_job,
    )
    replaced = {
        "WorkerPool": pool.begin,
        "check_model": lambda *_: CheckedModel("model.gguf", sha256, Path("model.gguf")),
        "ray_session": lambda *_, **__: contextlib.nullcontext(),
        "place_workers": lambda *_: Placement(workers or pool.nodes, 1),
    }
    with mock.patch.multiple(module, **replaced):
        return module.run_job(job, progress or (lambda _: None), retried=retried)
