"""The Ray session of a job: an embedded Ray of its own, or the cluster that is there."""

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import ray
import ray.exceptions

from worker.available_cores import available_cores

from .errors import JobConfigError, JobStoppedError
from .object_path import is_uri
from .ray_processes import ray_processes_ended

_ADDRESS: Final = "RAY_ADDRESS"
_JOB: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by `ray job submit` in the entry point
_AUTH_TOKEN: Final = "RAY_AUTH_TOKEN"
_OBJECT_STORE_BYTES: Final = 128 << 20  # shards in flight alone pass through it
_CONNECT_TIMEOUT_S: Final = 5.0

_TOKEN_HELP: Final = (
    "Ray's token authentication: set RAY_AUTH_MODE=token and give this machine the cluster's "
    "token, by RAY_AUTH_TOKEN or in ~/.ray/auth_token (`ray get-auth-token` prints it on the head)"
)


def in_ray_job() -> bool:
    """Tell whether this process is the entry point of ``ray job submit``."""
    return _JOB in os.environ


def embedded_cpus(workers: int | None, threads: int | None) -> int:
    """Return the CPUs an embedded Ray needs: by default all that this process may use."""
    workers = workers or 1
    return workers * (threads or max(1, available_cores() // workers))


def refuse_paths_in_package(source: str, output: str) -> None:
    """Refuse paths that mean Ray's cache of unpacked uploads rather than the user's disk.

    Under a Ray job the working directory is a copy that Ray deletes. An output there would be
    lost, and a second submit could not go on with it. An input may be in it: it was uploaded.

    Raises:
        JobConfigError: names the folder that the path stands for.
    """
    if not in_ray_job():
        return
    here = Path.cwd()
    if not is_uri(output) and not Path(output).is_absolute():
        raise JobConfigError(
            f"output {output}: under a Ray job a relative path is in Ray's cache of unpacked "
            f"packages, {here / output}, which Ray deletes; give an absolute path"
        )
    inside = Path(os.path.normpath(here / source)).is_relative_to(here)
    if not is_uri(source) and not Path(source).is_absolute() and not inside:
        raise JobConfigError(
            f"input {source}: under a Ray job a relative path outside the submitted folder is in "
            f"Ray's cache of unpacked packages, {os.path.normpath(here / source)}; "
            "give an absolute path"
        )


@contextmanager
def ray_session(num_cpus: int, *, process_ends: bool = False) -> Iterator[None]:
    """Join the cluster that ``RAY_ADDRESS`` names, or start an embedded Ray for this job.

    Args:
        num_cpus: CPUs of an embedded Ray; a cluster has its own.
        process_ends: the process leaves by ``os._exit`` after this session: an embedded Ray is
            killed at once rather than shut down, and SIGTERM meets our handler at all times.

    An embedded Ray is this process's alone: a token is made for it, nothing is reported to
    anybody, and it ends with the job.

    Raises:
        JobConfigError: the cluster does not answer or refuses the token.
        JobStoppedError: an embedded Ray does not start, or SIGTERM came meanwhile.
    """
    if ray.is_initialized():
        yield  # the caller's own session, which we leave as it is
        return
    joins = bool(os.environ.get(_ADDRESS)) or in_ray_job()
    own_sigterm = _sigterm_waits if process_ends else _sigterm_restored
    try:
        with own_sigterm():
            if joins:
                _join()
            else:
                _start(num_cpus)
        yield
    finally:
        with own_sigterm(), ray_processes_ended():
            if joins or not process_ends:
                ray.shutdown()


@contextmanager
def _sigterm_restored() -> Iterator[None]:
    """Put the handler of SIGTERM back: Ray sets one of its own, which ends the process, code 1."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as error:
        raise JobStoppedError("stopped by SIGTERM while Ray was starting") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _sigterm_waits() -> Iterator[None]:
    """Let SIGTERM wait until the block is over and its handler is back.

    Ray sets handlers that end the process, with code 1 or by the signal, and sets the default one
    in ``ray.shutdown()``. Its threads begin in here and never take the signal for the main thread.
    So do its processes, which only SIGKILL ends at once then.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with _sigterm_restored():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(num_cpus: int) -> None:
    # With a token there and no mode set, Ray turns token authentication on by itself; setting the
    # mode here would come too late, Ray has read it when it was imported.
    os.environ.setdefault(_AUTH_TOKEN, secrets.token_hex(32))
    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise JobStoppedError(
            f"no embedded Ray can be started on this machine ({reason}); check the space, the "
            "permissions and the memory that Ray finds in /tmp and /dev/shm"
        ) from error


def _join() -> None:
    address = os.environ.get(_ADDRESS, "auto")
    _refuse_unreachable(address)
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except ray.exceptions.AuthenticationError as error:
        raise JobConfigError(f"the Ray cluster at {address} refuses us; {_TOKEN_HELP}") from error
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise JobConfigError(
            f"the Ray cluster at {address} cannot be joined ({reason}); check RAY_ADDRESS and "
            f"that the cluster runs. If it asks for a token: {_TOKEN_HELP}"
        ) from error


def _refuse_unreachable(address: str) -> None:
    """Fail within seconds: Ray itself tries for a minute."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdigit()) or "://" in address:
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S):
            pass
    except OSError as error:
        raise JobConfigError(
            f"no Ray cluster answers at {address} ({error.strerror or error}); check RAY_ADDRESS, "
            "or unset it to run on this machine alone"
        ) from error
