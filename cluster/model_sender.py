"""Sending the driver's model to nodes that cannot get it, through Ray in bounded chunks.

An actor on the driver's node reads the files; a worker pulls, a few chunks under way at a time, so
that neither the object store nor the network holds more of a model than that.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from worker.errors import ModelSourceError
from worker.file_hash import file_sha256
from worker.model_source import files_of_model
from worker.received_model import SentFile

CHUNK_BYTES: Final = 4 << 20
_CHUNKS_UNDER_WAY: Final = 3  # of each node; a chunk is written while the next ones come
_READERS: Final = 4  # nodes that are served at the same moment


class ModelReader:
    """Reads the files of a model; an actor on the machine that has it. Knows nothing of Ray.

    Args:
        path: of the model, as ``fetch_model`` gave it.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._paths = files_of_model(self._path)

    def files(self) -> list[SentFile]:
        """List the files, the one to open first."""
        return [
            SentFile(self._name(path), path.stat().st_size, file_sha256(path))
            for path in self._paths
        ]

    def read(self, index: int, offset: int, n_bytes: int) -> bytes:
        """Read a piece of a file.

        Raises:
            OSError: it cannot be read.
        """
        with self._paths[index].open("rb") as file:
            file.seek(offset)
            return file.read(n_bytes)

    def _name(self, path: Path) -> str:
        return f"{self._path.name}/{path.name}" if self._path.is_dir() else path.name


@dataclass(frozen=True, slots=True)
class RayModelSender:
    """What a worker is given to pull a model: a `worker.received_model.ModelSender`.

    Attributes:
        reader: the actor around a ModelReader.
        chunk_bytes: most bytes pulled at a time.
    """

    reader: Any  # an actor's methods are not known to the type checker
    chunk_bytes: int = CHUNK_BYTES

    def files(self) -> Sequence[SentFile]:
        """List the model's files.

        Raises:
            ModelSourceError: the driver's node fails.
        """
        listed: Sequence[SentFile] = self._get(self.reader.files.remote())
        return listed

    def chunks(self, index: int, start: int, end: int) -> Iterator[bytes]:
        """Give bytes ``start`` to ``end`` of a file, in order.

        Raises:
            ModelSourceError: the driver's node fails.
        """
        under_way: deque[Any] = deque()
        for offset in range(start, end, self.chunk_bytes):
            wanted = min(self.chunk_bytes, end - offset)
            under_way.append(self.reader.read.remote(index, offset, wanted))
            if len(under_way) == _CHUNKS_UNDER_WAY:
                yield self._get(under_way.popleft())
        while under_way:
            yield self._get(under_way.popleft())

    def _get(self, ref: Any) -> Any:  # noqa: ANN401 - see reader
        try:
            return ray.get(ref)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ModelSourceError(f"the driver cannot send the model: {reason}") from error


def start_model_sender(path: Path) -> RayModelSender:
    """Start the actor that reads a model, on this process's own node."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    # Reading again does no harm, so Ray may bring the actor back and repeat what was asked of it.
    actor = ray.remote(ModelReader).options(
        num_cpus=0,
        max_concurrency=_READERS,
        max_restarts=-1,
        max_task_retries=-1,
        scheduling_strategy=here,
    )
    return RayModelSender(actor.remote(str(path)))
