"""``tokenmill submit``: ``ray job submit``, after a look at what it would upload."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from cluster.errors import JobConfigError
from cluster.working_dir import checked_upload


def submit(
    working_dir: Path,
    runtime_env: Path | None,
    ray_options: Sequence[str],
    entrypoint: Sequence[str],
) -> NoReturn:
    """Check the working directory and become ``ray job submit``; does not return.

    Args:
        working_dir: the folder to upload.
        runtime_env: a YAML file for Ray, whose excludes count.
        ray_options: further options of ``ray job submit``.
        entrypoint: the job's command.

    Raises:
        JobConfigError: the folder is too large, or Ray's command is not there.
    """
    upload = checked_upload(working_dir, runtime_env)
    command = [_ray(), "job", "submit", "--working-dir", str(working_dir), *ray_options]
    if runtime_env is not None:
        command += ["--runtime-env", str(runtime_env)]
    print(f"uploading at most {upload}", flush=True)
    os.execv(command[0], [*command, "--", *entrypoint])


def _ray() -> str:
    """Ray's command: of this environment, else the one that is found."""
    own = Path(sys.executable).with_name("ray")
    found = str(own) if own.is_file() else shutil.which("ray")
    if found is None:
        raise JobConfigError("there is no command ray; activate the environment it is installed in")
    return found
