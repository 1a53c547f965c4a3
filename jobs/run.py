"""``tokenmill run``: a configured job, its progress and its summary."""

from collections.abc import Sequence

from cluster.job import Job
from cluster.retry import error_kinds
from cluster.run_job import run_job as run_on_cluster
from cluster.summary import FinishedWithErrors

from .config import JobConfig
from .report import live_progress, summary_lines


def run_job(config: JobConfig, retry_errors: Sequence[str] | None = None) -> None:
    """Run a job and print its summary; the last line states the number of row errors.

    Args:
        config: the job.
        retry_errors: kinds of errors whose rows are done again, all kinds if there is none in it;
            None for no retry.

    Raises:
        ClusterError, WorkerError, KVPoolError: as ``jobs.exit_codes`` maps them.
    """
    job = Job(**{name: getattr(config, name) for name in JobConfig.model_fields})
    retried = frozenset() if retry_errors is None else error_kinds(retry_errors)
    try:
        with live_progress() as show:
            summary = run_on_cluster(job, show, retried=retried, process_ends=True)
    except FinishedWithErrors as error:
        print("\n".join(summary_lines(error.summary)), flush=True)
        raise
    print("\n".join(summary_lines(summary)), flush=True)
