"""The fingerprint of a job: everything that can change a row, by name."""

import json
from dataclasses import asdict
from typing import Any

from .dataset import InputDataset
from .job import Job
from .manifest import NUMERICS_VERSION


def fingerprint(job: Job, model_sha256: str, numerics: str | None) -> dict[str, Any]:
    """Return what must be equal for two runs to be the same one, in JSON's types.

    Args:
        job: as configured.
        model_sha256: hash of the model file.
        numerics: the workers' numerics identity; None before one of them told.
    """
    engine = job.engine
    date = engine.chat_template_date
    return {
        "model_sha256": model_sha256,
        "prompt_column": job.prompt_column,
        "messages_column": job.messages_column,
        "sampling_params_column": job.sampling_params_column,
        "tools_column": job.tools_column,
        "tokenizer_pre": engine.tokenizer_pre,
        "parse_special": engine.parse_special,
        "chat_template": engine.chat_template,
        "chat_template_kwargs": json.loads(json.dumps(dict(engine.chat_template_kwargs))),
        "chat_template_date": None if date is None else date.isoformat(),
        "sampling": json.loads(json.dumps(asdict(job.sampling))),  # lists, as a manifest has them
        "max_n": job.max_n,
        "seed": engine.job_seed,
        "compute": engine.compute,
        "kv_dtype": engine.kv_cache_dtype,
        "max_model_len": engine.max_model_len,
        "kv_pool_bytes": engine.kv_pool_bytes,
        "kv_pool_tokens": engine.kv_pool_tokens,
        "kv_pool_share": engine.kv_pool_share is not None,  # any share holds a row of full length
        "block_size": engine.block_size,
        "output_columns": sorted(job.optional_columns),
        "output_prefix": job.cluster.output_prefix,
        "numerics_version": NUMERICS_VERSION,
        "numerics": numerics,
    }


def describe_inputs(dataset: InputDataset) -> list[dict[str, Any]]:
    """Return what the manifest keeps of each input file; no times, a ``touch`` changes nothing."""
    return [
        {
            "path": file.relative,
            "size": file.size,
            "footer_sha256": file.footer_sha256,
            "num_rows": file.num_rows,
        }
        for file in dataset.files
    ]
