"""From a job to a finished run directory: the public entry of this package."""

from datetime import datetime
from functools import reduce
from pathlib import Path

from worker.engine.checksum import TokenChecksum

from .actor import WorkerSpec
from .dataset import InputDataset
from .driver import Driver
from .errors import JobConfigError
from .fingerprint import describe_inputs, fingerprint
from .input_files import would_read
from .job import Job
from .manifest import Manifest, PartRecord
from .model_check import CheckedModel, check_model
from .output_columns import output_schema
from .parts import PartWriter
from .peak_memory import peak_rss_bytes
from .plan import CuttingRule, cut_shards
from .progress import Phase, Progress, ProgressCallback
from .reader import read_requests
from .run_directory import RunDirectory
from .session import embedded_cpus, ray_session, refuse_paths_in_package
from .statistics import write_row_stats, write_worker_totals
from .stop_signal import StopSignal, stop_signal
from .summary import FinishedWithErrors, JobSummary
from .worker_pool import WorkerPool, place_workers


def run_job(job: Job, progress: ProgressCallback, *, process_ends: bool = False) -> JobSummary:
    """Run a job from its input to ``_SUCCESS``.

    Everything that can be wrong with the configuration, the input, the output folder and the
    model's header is found before a worker starts; nothing is written then.

    Args:
        job: what to do.
        progress: told about the job's state several times a second, in this thread.
        process_ends: as of ``ray_session``.

    Raises:
        JobConfigError: the job as configured cannot run.
        InputError: the input cannot be read; shards committed before are kept.
        ModelError, EngineConfigError, PoolSizeError: the model or the engine's settings.
        JobStoppedError: stopped by a signal, a full disk or the loss of all workers.
        RowErrorsError: more rows failed than ``max_errors``; or, as ``FinishedWithErrors`` with
            the summary, ``fail_on_errors`` is set and some failed.
    """
    progress(Progress(phase=Phase.CHECKING))
    refuse_paths_in_package(job.input, job.output)
    _refuse_output_in_input(job)
    with stop_signal() as stop:
        dataset = InputDataset.open(job.input, job.columns)
        output_schema(dataset.schema, job.optional_columns, job.cluster.output_prefix)
        with RunDirectory.claim(job.output) as run:
            model = check_model(job, dataset)
            progress(Progress(phase=Phase.STARTING, num_rows=dataset.num_rows))
            cpus = embedded_cpus(job.cluster.workers, job.engine.threads)
            stop.defer()  # Ray logs what is raised while it starts, and goes on with half a session
            with ray_session(cpus, process_ends=process_ends):
                stop.check()
                return _run(job, dataset, run, model, stop, progress)


def _refuse_output_in_input(job: Job) -> None:
    """Parts in the input would be input of the next run, without a word."""
    if would_read(job.input, Path(job.output) / "part-00000.parquet"):
        raise JobConfigError(
            f"output {job.output} lies in the input {job.input}: its files would be read as input "
            "by the next run; choose an output folder elsewhere"
        )


def _run(
    job: Job,
    dataset: InputDataset,
    run: RunDirectory,
    model: CheckedModel,
    stop: StopSignal,
    progress: ProgressCallback,
) -> JobSummary:
    placement = place_workers(job.cluster.workers, job.engine.threads)
    rule = CuttingRule.for_dataset(dataset, job.cluster, placement.workers)
    date = job.engine.chat_template_date or datetime.now().astimezone()
    fixed = {"threads": placement.threads, "chat_template_date": date}
    spec = WorkerSpec(
        model=model.source,
        sha256=model.sha256,
        engine=job.engine.model_copy(update=fixed),
        sampling=job.row_defaults,
        max_n=job.max_n,
        optional=job.optional_columns,
    )
    pool = WorkerPool(spec, placement.threads)
    driver = Driver(
        job=job,
        num_rows=dataset.num_rows,
        run=run,
        pool=pool,
        placement=placement,
        stop=stop,
        progress=progress,
    )
    try:
        driver.start()
        manifest = Manifest(
            fingerprint=fingerprint(job, model.sha256, driver.numerics),
            inputs=describe_inputs(dataset),
            cutting=rule,
            template_date=date.isoformat(),
        )
        run.begin(manifest)
        schema = output_schema(dataset.schema, job.optional_columns, job.cluster.output_prefix)
        parts = PartWriter(run, dataset, rule, schema, job.optional_columns)
        driver.run(cut_shards(read_requests(dataset), rule, dataset.num_rows), parts)
    finally:
        pool.stop()
    _finish(run, manifest, driver)
    return _checked(job, _summary(run, driver))


def _finish(run: RunDirectory, manifest: Manifest, driver: Driver) -> None:
    driver.write_samples()
    write_row_stats(run)
    write_worker_totals(run, [worker.as_row() for worker in driver.workers.values()])
    run.finish(manifest.with_parts(driver.part_records))


def _summary(run: RunDirectory, driver: Driver) -> JobSummary:
    totals = driver.totals
    return JobSummary(
        output=run.path,
        num_rows=totals.num_rows,
        num_errors=totals.num_errors,
        num_parts=len(driver.part_records),
        generated_tokens=totals.generated_tokens,
        elapsed_s=driver.elapsed_s,
        ttft_p50_s=driver.ttft.percentile(0.50),
        ttft_p90_s=driver.ttft.percentile(0.90),
        ttft_p99_s=driver.ttft.percentile(0.99),
        peak_rss_bytes=peak_rss_bytes(),
        checksum=str(reduce(_add_checksum, driver.part_records, TokenChecksum())),
        workers=tuple(worker.summary() for worker in driver.workers.values()),
    )


def _add_checksum(total: TokenChecksum, record: PartRecord) -> TokenChecksum:
    total.merge(TokenChecksum(int(record.checksum, 16)))
    return total


def _checked(job: Job, summary: JobSummary) -> JobSummary:
    if job.cluster.fail_on_errors and summary.num_errors:
        raise FinishedWithErrors(
            f"all {summary.num_rows} rows are done, {summary.num_errors} of them failed, and "
            f"fail_on_errors is set; their column error in {summary.output} says why",
            summary,
        )
    return summary
