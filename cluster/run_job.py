"""From a job to a finished run directory: the public entry of this package."""

from datetime import datetime
from functools import reduce

from worker.engine.checksum import TokenChecksum
from worker.errors import ErrorKind

from .actor import WorkerSpec
from .committed import NOTHING, Committed, recover
from .dataset import InputDataset
from .driver import Driver
from .errors import JobConfigError
from .fingerprint import describe_inputs, fingerprint
from .input_files import display, would_read
from .job import Job
from .journal import next_driver
from .location import location, without_secrets
from .manifest import Manifest, PartRecord, total_errors
from .model_check import CheckedModel, check_model
from .output_columns import output_schema
from .parts import PartWriter
from .peak_memory import peak_rss_bytes
from .plan import CuttingRule, cut_shards
from .progress import Phase, Progress, ProgressCallback
from .reader import read_requests
from .reopen import reopen
from .retry import Retry
from .run_directory import RunDirectory
from .same_run import NUMERICS, refuse_other_run
from .session import embedded_cpus, ray_session, refuse_paths_in_package
from .statistics import write_row_stats
from .stop_signal import StopSignal, stop_signal
from .summary import FinishedWithErrors, JobSummary
from .worker_pool import Placement, WorkerPool, place_workers


def run_job(
    job: Job,
    progress: ProgressCallback,
    *,
    retried: frozenset[ErrorKind] = frozenset(),
    process_ends: bool = False,
) -> JobSummary:
    """Run a job from its input to ``_SUCCESS``.

    Everything that can be wrong with the configuration, the input, the output folder and the
    model's header is found before a worker starts; nothing is written then.

    Args:
        job: what to do.
        progress: told about the job's state several times a second, in this thread.
        retried: the kinds of errors whose rows are done again, once all rows are done; a retry of
            these kinds that is under way is gone on with.
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

    def tell(note: str) -> None:
        progress(Progress(phase=Phase.CHECKING, note=note))

    refuse_paths_in_package(job.input, job.output)
    _refuse_output_in_input(job)
    with stop_signal() as stop:
        dataset = InputDataset.open(job.input, job.columns)
        output_schema(dataset.schema, job.optional_columns, job.cluster.output_prefix)
        with RunDirectory.claim(job.output, tell) as run:
            model = check_model(job, dataset)
            if run.manifest is not None:
                _refuse_other_run(job, dataset, run.manifest, model)
                if run.is_complete:
                    run.clean()
                    if not _retry(run, retried, progress):
                        return _checked(job, _earlier_summary(run, run.manifest))
            progress(Progress(phase=Phase.STARTING, num_rows=dataset.num_rows))
            cpus = embedded_cpus(job.cluster.workers, job.engine.threads)
            stop.defer()  # Ray logs what is raised while it starts, and goes on with half a session
            with ray_session(cpus, process_ends=process_ends):
                stop.check()
                under_way = Retry.read(run).kinds
                summary = _run(job, dataset, run, model, stop, progress)
                if under_way != retried and _retry(run, retried, progress):
                    summary = _run(job, dataset, run, model, stop, progress)
                return _checked(job, summary)


def _refuse_other_run(
    job: Job, dataset: InputDataset, manifest: Manifest, model: CheckedModel
) -> None:
    now = fingerprint(job, model.sha256, numerics=None)
    refuse_other_run(manifest, display(without_secrets(job.output)), now, describe_inputs(dataset))


def _refuse_output_in_input(job: Job) -> None:
    """Parts in the input would be input of the next run, without a word."""
    try:
        is_inside = would_read(job.input, location(job.output) / "part-00000.parquet")
    except OSError as error:
        raise JobConfigError(
            f"output {without_secrets(job.output)}: cannot be reached ({error}); check its URI"
        ) from error
    if is_inside:
        raise JobConfigError(
            f"output {without_secrets(job.output)} lies in the input "
            f"{without_secrets(job.input)}: its files would be read as input "
            "by the next run; choose an output folder elsewhere"
        )


def _retry(run: RunDirectory, kinds: frozenset[ErrorKind], progress: ProgressCallback) -> bool:
    """Begin a retry in a finished run, if one is asked for and there is anything to do again."""
    if not kinds:
        return False
    num_rows = reopen(run, kinds)
    of_kinds = f"rows in error ({', '.join(sorted(kinds))})"
    note = f"trying {num_rows:,} {of_kinds} again" if num_rows else f"no {of_kinds} to try again"
    progress(Progress(phase=Phase.CHECKING, note=note))
    return num_rows > 0


def _run(
    job: Job,
    dataset: InputDataset,
    run: RunDirectory,
    model: CheckedModel,
    stop: StopSignal,
    progress: ProgressCallback,
) -> JobSummary:
    placement = place_workers(job.cluster.workers, job.engine.threads)
    rule, date, committed = _plan(job, dataset, run, placement)
    fixed = {"threads": placement.threads, "chat_template_date": date}
    spec = WorkerSpec(
        model=model.source,
        sha256=model.sha256,
        engine=job.engine.model_copy(update=fixed),
        sampling=job.row_defaults,
        max_n=job.max_n,
        optional=job.optional_columns,
        memory_reserve_bytes=job.cluster.memory_reserve_bytes,
    )
    pool = WorkerPool(spec, placement.threads, model.path, next_driver(run.shards))
    driver = Driver(
        job=job,
        num_rows=dataset.num_rows,
        run=run,
        pool=pool,
        placement=placement,
        stop=stop,
        progress=progress,
        committed=committed,
        numerics=None if run.manifest is None else run.manifest.fingerprint[NUMERICS],
    )
    try:
        driver.start()
        if run.manifest is None:
            manifest = Manifest(
                fingerprint=fingerprint(job, model.sha256, driver.numerics),
                inputs=describe_inputs(dataset),
                cutting=rule,
                template_date=date.isoformat(),
            )
            run.begin(manifest)
        schema = output_schema(dataset.schema, job.optional_columns, job.cluster.output_prefix)
        parts = PartWriter(run, dataset, rule, schema, job.optional_columns, committed)
        wanted = committed.missing(dataset.num_rows)
        driver.run(cut_shards(read_requests(dataset), rule, wanted), parts)
    finally:
        pool.stop()
    _finish(run, driver)
    return _summary(run, driver)


def _plan(
    job: Job, dataset: InputDataset, run: RunDirectory, placement: Placement
) -> tuple[CuttingRule, datetime, Committed]:
    """How rows are cut, the date that templates see, and what is done already.

    A run keeps its rule and its date, whatever the number of workers and the day are now.
    """
    configured = job.engine.chat_template_date
    if run.manifest is None:
        rule = CuttingRule.for_dataset(dataset, job.cluster, placement.workers)
        return rule, configured or datetime.now().astimezone(), NOTHING
    run.make_folders()
    rule = run.manifest.cutting
    date = configured or datetime.fromisoformat(run.manifest.template_date)
    return rule, date, recover(run, rule)


def _finish(run: RunDirectory, driver: Driver) -> None:
    assert run.manifest is not None, "the run has begun"
    driver.write_statistics()
    write_row_stats(run)
    drivers = next_driver(run.shards) - 1
    run.finish(run.manifest.finished(driver.part_records, drivers))


def _summary(run: RunDirectory, driver: Driver) -> JobSummary:
    totals = driver.totals
    return JobSummary(
        output=str(run.path),
        num_rows=totals.num_rows,
        rows_before=driver.rows_before,
        errors=dict(totals.errors),
        num_parts=len(driver.part_records),
        generated_tokens=sum(part.num_generated_tokens for part in driver.part_records),
        elapsed_s=driver.elapsed_s,
        ttft_p50_s=driver.ttft.percentile(0.50),
        ttft_p90_s=driver.ttft.percentile(0.90),
        ttft_p99_s=driver.ttft.percentile(0.99),
        peak_rss_bytes=peak_rss_bytes(),
        checksum=_checksum(driver.part_records),
        workers=tuple(worker.summary() for worker in driver.workers.values()),
    )


def _earlier_summary(run: RunDirectory, manifest: Manifest) -> JobSummary:
    """The summary of a run that was finished before."""
    parts = manifest.parts
    num_rows = sum(part.num_rows for part in parts)
    return JobSummary(
        output=str(run.path),
        num_rows=num_rows,
        rows_before=num_rows,
        errors=total_errors(parts),
        num_parts=len(parts),
        generated_tokens=sum(part.num_generated_tokens for part in parts),
        elapsed_s=0.0,
        ttft_p50_s=None,
        ttft_p90_s=None,
        ttft_p99_s=None,
        peak_rss_bytes=peak_rss_bytes(),
        checksum=_checksum(parts),
        workers=(),
    )


def _checksum(parts: list[PartRecord]) -> str:
    return str(reduce(_add_checksum, parts, TokenChecksum()))


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
