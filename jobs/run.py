"""``tokenmill run``: a configured job, its progress and its summary."""

from cluster.job import Job
from cluster.run_job import run_job as run_on_cluster
from cluster.summary import FinishedWithErrors

from .config import JobConfig
from .report import live_progress, summary_lines


def run_job(config: JobConfig) -> None:
    """Run a job and print its summary; the last line states the number of row errors.

    Raises:
        ClusterError, WorkerError, KVPoolError: as ``jobs.exit_codes`` maps them.
    """
    job = Job(**{name: getattr(config, name) for name in JobConfig.model_fields})
    try:
        with live_progress() as show:
            summary = run_on_cluster(job, show, process_ends=True)
    except FinishedWithErrors as error:
        print("\n".join(summary_lines(error.summary)), flush=True)
        raise
    print("\n".join(summary_lines(summary)), flush=True)
