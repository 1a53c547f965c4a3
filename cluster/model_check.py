"""The model, as far as it can be judged before any worker starts."""

from dataclasses import dataclass
from pathlib import Path

from worker.engine.prompting import prompt_encoder
from worker.errors import ModelError
from worker.model_source import fetch_model, is_path, model_sha256
from worker.open_model import open_model

from .dataset import InputDataset
from .job import Job


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The job's model on this machine.

    Attributes:
        source: what workers resolve: the source as given, a local path made absolute.
        sha256: the model's ``model_sha256`` here; every worker's must be the same.
        path: where it is here.
    """

    source: str
    sha256: str
    path: Path


def check_model(job: Job, dataset: InputDataset) -> CheckedModel:
    """Fetch the model and check all of it but its weights: hyperparameters, tokenizer, template.

    Raises:
        ModelError: it cannot be fetched, is not sound, cannot be run, or has no chat
            template although the input has messages.
        EngineConfigError: the settings of the chat template cannot be used.
    """
    # Imported here: it compiles kernels, which a job with a wrong path need not wait for.
    from worker.models.registry import model_config

    path = fetch_model(job.model, sha256=job.model_sha256)
    model = open_model(path)
    try:
        model_config(model)
        _, encoder = prompt_encoder(model, job.engine)
    finally:
        model.close()
    messages = dataset.columns.messages
    if messages is not None and not encoder.has_template:
        raise ModelError(
            f"{path}: no tokenizer.chat_template in the file, and the input column {messages} "
            "needs one; give a template by engine.chat_template, or use a prompt column"
        )
    source = str(path.absolute()) if is_path(job.model) else job.model
    return CheckedModel(source, _sha256(job, path), path)


def _sha256(job: Job, path: Path) -> str:
    return job.model_sha256.lower() if job.model_sha256 else model_sha256(path)
