"""A job: everything that a run needs to be told."""

import os
from dataclasses import dataclass, field, replace

from worker.engine.config import EngineConfig
from worker.engine.sampling_params import SamplingParams

from .config import ClusterConfig
from .errors import JobConfigError
from .input_columns import InputColumns
from .location import local_form
from .optional_column import OptionalColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One dataset, one model, one output folder. A leading ``~`` in a path is the user's home.

    Input and output may be URIs that ``pyarrow.fs`` knows.

    Attributes:
        input: file, folder or glob pattern of Parquet files.
        output: the run directory.
        model: model source, resolved on every machine by itself.
        model_sha256: what the model's hash must be; None accepts any.
        prompt_column, messages_column, tools_column, sampling_params_column: see ``InputColumns``.
        sampling: parameters of rows that set none.
        engine: settings of every worker's engine.
        cluster: how the work is spread and written.

    Raises:
        JobConfigError: a path is empty or cannot be one; or ``sampling.n`` is above ``max_n``.
    """

    input: str
    output: str
    model: str
    model_sha256: str | None = None
    prompt_column: str | None = None
    messages_column: str | None = None
    tools_column: str | None = None
    sampling_params_column: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    engine: EngineConfig = field(default_factory=EngineConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    def __post_init__(self) -> None:
        for name in ("input", "output", "model"):
            path = os.path.expanduser(getattr(self, name))  # noqa: PTH111 - patterns stay as given
            if not path or "\0" in path:
                raise JobConfigError(f"{name}: {path!r} is no path; name a file or folder")
            object.__setattr__(self, name, local_form(path) if name != "model" else path)
        if self.sampling.n > self.max_n:
            raise JobConfigError(
                f"sampling.n: {self.sampling.n} is more than cluster.max_n {self.max_n}; raise "
                "cluster.max_n or lower sampling.n"
            )

    @property
    def max_n(self) -> int:
        """Most completions that a row may ask for."""
        return self.cluster.max_n or self.sampling.n

    @property
    def row_defaults(self) -> SamplingParams:
        """Sampling parameters of rows that set none; a column of log-probabilities has some."""
        if self.sampling.logprobs is None and OptionalColumn.LOGPROBS in self.optional_columns:
            return replace(self.sampling, logprobs=0)
        return self.sampling

    @property
    def columns(self) -> InputColumns:
        """Where the requests are."""
        return InputColumns(
            prompt=self.prompt_column,
            messages=self.messages_column,
            tools=self.tools_column,
            sampling_params=self.sampling_params_column,
        )

    @property
    def optional_columns(self) -> frozenset[OptionalColumn]:
        """Result columns besides the usual ones: asked for, or following from the sampling."""
        asked = self.cluster.output_columns
        if self.sampling.logprobs is not None:
            asked |= {OptionalColumn.LOGPROBS}
        if self.max_n > 1:
            asked |= {OptionalColumn.COMPLETIONS}
        return asked
