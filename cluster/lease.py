"""The lock of an output in an object store: one driver writes, and a second one is told who.

pyarrow has no conditional PUT, and no lock of an object store ends with its process. So each driver
keeps a claim, an object beside the parts that it rewrites every few seconds with a higher count:

* Who wants to write looks at the claims that are there until one changes (its driver lives:
  refused) or none has changed for long (their drivers are dead: removed). Then it puts its own and
  looks again: of two that do so at the same moment at least one sees the other, and who sees
  another one steps back. That a PUT is seen by every LIST that begins after it is all that is
  asked of the store.
* No clock is compared with another machine's: an observer counts its own looks.
* A driver that was suspended looks, before it changes anything, whether its claim is still there.
"""

import json
import random
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import monotonic, sleep, time
from typing import Final

from .errors import JobConfigError, JobStoppedError
from .lock import this_process
from .object_path import ObjectPath

CLAIM_PREFIX: Final = "_lock-"

RENEW_S: float = 5.0
LOOK_S: float = 1.0
SILENT_LOOKS: int = 30  # a claim that did not change meanwhile is nobody's
TRUST_S: float = 15.0  # a holder that was not heard of for so long asks before it writes
_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a driver says of itself in the output.

    Attributes:
        nonce: the driver's own.
        host, pid: where it runs, as which process.
        started: when it began, UTC, for people.
        count: how often it was renewed.
        replaced: nonces of the drivers whose claims it removed because nothing was heard of them.
    """

    nonce: str
    host: str
    pid: int
    started: str
    count: int = 0
    replaced: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"on {self.host}, pid {self.pid}, since {self.started}"


class Lease:
    """The right to write into an output, kept by a thread until it is closed or the process ends.

    Args:
        folder: the output.
        replaced: nonces of the claims that were removed for it.
    """

    def __init__(self, folder: ObjectPath, replaced: list[str]) -> None:
        self._folder = folder
        self._claim = Claim(nonce=secrets.token_hex(8), **this_process(), replaced=replaced)
        self._count = 0
        self._confirmed = (0.0, 0.0)
        self._lost: JobStoppedError | None = None
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    @classmethod
    def take(cls, folder: ObjectPath, name: str, tell: Callable[[str], None]) -> "Lease":
        """Wait until nobody writes into an output any more, and claim it.

        Args:
            folder: the output.
            name: its name, for messages.
            tell: told why this takes long.

        Raises:
            JobConfigError: a living driver writes there, or others want to at the same moment.
            OSError: the store fails.
        """
        for _ in range(_TRIES):
            lease = cls(folder, _remove_silent(folder, name, tell))
            if lease._is_alone():
                lease._thread.start()
                folder.store.confirm = lease.confirm
                return lease
            sleep(random.uniform(0, LOOK_S))
        raise JobConfigError(
            f"{name}: other drivers are starting at this output folder at the same moment; start "
            "one of them again"
        )

    def confirm(self) -> None:
        """Make sure that nobody has taken this driver for dead; costs nothing while it is awake.

        Raises:
            JobStoppedError: somebody has.
            OSError: the store fails.
        """
        if self._lost is not None:
            raise self._lost
        if not self._is_awake():
            self._renew()

    def close(self) -> None:
        """Let the output go."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._folder.store.confirm = lambda: None
        self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> ObjectPath:
        return self._folder / f"{CLAIM_PREFIX}{self._claim.nonce}"

    def _is_alone(self) -> bool:
        """Put the claim, and step back if there is another one or this took suspiciously long."""
        self._confirmed = monotonic(), time()
        try:
            self._put()
            is_alone = list(read_claims(self._folder)) == [self._claim.nonce] and self._is_awake()
        except BaseException:
            self._path.unlink(missing_ok=True)
            raise
        if not is_alone:
            self._path.unlink(missing_ok=True)
        return is_alone

    def _is_awake(self) -> bool:
        """Tell whether the claim was confirmed a moment ago.

        Clocks that stop while a machine sleeps are as common as clocks that are set: both count.
        """
        awake, wall = self._confirmed
        return max(monotonic() - awake, abs(time() - wall)) <= TRUST_S

    def _keep(self) -> None:
        while not self._closed.wait(RENEW_S):
            try:
                self._renew()
            except JobStoppedError as error:
                self._lost = error
                return
            except OSError:
                continue  # the next change of the output finds out whether the store is gone

    def _renew(self) -> None:
        with self._guard:
            begin = monotonic(), time()
            claims = read_claims(self._folder)
            for claim in claims.values():
                if self._claim.nonce in claim.replaced:
                    raise self._taken_by(str(claim))
            if self._claim.nonce not in claims:
                raise self._taken_by("which has ended since")
            self._put()
            self._confirmed = begin

    def _put(self) -> None:
        self._count += 1
        document = asdict(self._claim) | {"count": self._count}
        self._folder.store.put(self._path.key, json.dumps(document).encode())

    def _taken_by(self, who: str) -> JobStoppedError:
        return JobStoppedError(
            f"{self._folder}: this driver was not heard of for {SILENT_LOOKS * LOOK_S:g} s, and "
            f"another one took the output over ({who}); what was committed is kept, let it work"
        )


def read_claims(folder: ObjectPath) -> dict[str, Claim]:
    """Return the claims in an output by their nonces.

    Raises:
        OSError: the store fails.
    """
    found = {}
    for path in folder.glob(f"{CLAIM_PREFIX}*"):
        try:
            claim = Claim(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            continue  # let go since the listing
        found[claim.nonce] = claim
    return found


def is_held(folder: ObjectPath) -> bool:
    """Tell whether a living driver has a claim; takes seconds unless there is none.

    Raises:
        OSError: the store fails.
    """
    before = read_claims(folder)
    deadline = monotonic() + TRUST_S
    while before and monotonic() < deadline:
        sleep(LOOK_S / 4)
        if any(claim != before.get(nonce) for nonce, claim in read_claims(folder).items()):
            return True
    return False


def _remove_silent(folder: ObjectPath, name: str, tell: Callable[[str], None]) -> list[str]:
    """Return the nonces of claims whose drivers are dead, and remove these.

    Raises:
        JobConfigError: one of the drivers lives.
    """
    silent = before = read_claims(folder)
    for look in range(SILENT_LOOKS):
        if not silent:
            break
        if look == 0:
            tell(
                f"a driver that has not let go of {name} ({next(iter(silent.values()))}) may be "
                f"dead: taking its place if nothing is heard of it for {SILENT_LOOKS * LOOK_S:g} s"
            )
        sleep(LOOK_S)
        silent = read_claims(folder)
        for nonce, claim in silent.items():
            if claim != before.get(nonce):
                raise _refusal(name, claim)
    folder.store.remove((folder / f"{CLAIM_PREFIX}{nonce}").key for nonce in silent)
    return list(silent)


def _refusal(name: str, claim: Claim) -> JobConfigError:
    return JobConfigError(
        f"{name}: another driver is writing to this output folder ({claim}); wait for it or choose "
        "another folder"
    )
