"""The model, as far as it can be judged before any worker starts."""

from dataclasses import dataclass
from pathlib import Path

from worker.errors import ModelError
from worker.gguf.file import GGUFFile
from worker.model_source import fetch_model, file_sha256

from .dataset import InputDataset
from .job import Job

_TEMPLATE_KEY = "tokenizer.chat_template"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The job's model on this machine.

    Attributes:
        source: what workers resolve: the source as given, a local path made absolute.
        sha256: of the file here; that of every worker must be the same.
    """

    source: str
    sha256: str


def check_model(job: Job, dataset: InputDataset) -> CheckedModel:
    """Fetch the model, read its header, and check that there is a chat template if one is needed.

    Raises:
        ModelError: it cannot be fetched, is no sound GGUF file, or has no chat template although
            the input has messages.
    """
    path = fetch_model(job.model, sha256=job.model_sha256)
    model = GGUFFile.open(path)
    try:
        template = job.engine.chat_template or model.metadata.text(_TEMPLATE_KEY, None)
    finally:
        model.close()
    messages = dataset.columns.messages
    if messages is not None and template is None:
        raise ModelError(
            f"{path}: no {_TEMPLATE_KEY} in the file, and the input column {messages} needs one; "
            "give a template by engine.chat_template, or use a prompt column"
        )
    is_local = not job.model.startswith(("hf:", "pypi:"))
    return CheckedModel(str(path.absolute()) if is_local else job.model, _sha256(job, path))


def _sha256(job: Job, path: Path) -> str:
    return job.model_sha256.lower() if job.model_sha256 else file_sha256(path)
