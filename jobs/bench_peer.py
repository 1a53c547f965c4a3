"""Running llama.cpp's llama-batched-bench on a case, and reading what it measured."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from cluster.errors import JobConfigError

from .bench_plan import Case

# It ends without waiting for the thread that writes its lines, so a quick run may print none.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second of a case: of its prompts, and of its decode steps."""

    prefill: float
    decode: float


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Settings of llama.cpp that change its speed, never its work.

    Attributes:
        flash_attention: on or off.
        ubatch: most tokens it computes at once.
    """

    flash_attention: str
    ubatch: int

    @property
    def flags(self) -> tuple[str, ...]:
        """As command-line arguments."""
        return ("-fa", self.flash_attention, "-ub", str(self.ubatch))

    def __str__(self) -> str:
        return " ".join(self.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """llama-batched-bench on one model file.

    Attributes:
        program: the path of the binary.
        model: the GGUF file.
        threads: for prefill and decode.
    """

    program: Path
    model: Path
    threads: int

    def check(self) -> None:
        """Refuse a program that cannot be started, before anything is measured.

        Raises:
            JobConfigError: naming the path and what it is.
        """
        if not self.program.is_file():
            found = "a folder" if self.program.is_dir() else "nothing"
            raise JobConfigError(
                f"--peer {self.program}: found {found}, expected the program llama-batched-bench, "
                "which llama.cpp's build leaves in build/bin"
            )
        if not os.access(self.program, os.X_OK):
            raise JobConfigError(
                f"--peer {self.program}: the file is not executable; name the program "
                "llama-batched-bench of a build for this machine, or chmod +x it"
            )

    def arguments(self, case: Case, settings: PeerSettings) -> list[str]:
        """The command that measures a case."""
        threads, context = str(self.threads), str(case.n_kv)
        return [
            *(str(self.program), "-m", str(self.model), "-t", threads, "-tb", threads),
            *("-npp", str(case.pp), "-ntg", str(case.tg), "-npl", str(case.b)),
            *("-c", context, "-b", "2048", *settings.flags, "--output-format", "jsonl"),
        ]

    def measure(self, case: Case, settings: PeerSettings) -> Speeds:
        """Run the case once.

        Raises:
            JobConfigError: the program failed, or what it printed is no result of this case.
        """
        command = self.arguments(case, settings)
        for _ in range(_ATTEMPTS):
            lines = self._run(command)
            if lines:
                return self._speeds(lines, case)
        raise JobConfigError(
            f"--peer {self.program}: printed no result in {_ATTEMPTS} runs of PP {case.pp}, "
            f"TG {case.tg}, B {case.b}, expected a line of JSON; see what this prints: "
            f"{' '.join(command)}"
        )

    def _run(self, command: list[str]) -> list[str]:
        """The lines that it printed on standard output."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise JobConfigError(
                f"--peer {self.program}: cannot be started ({error.strerror}); name the program "
                "llama-batched-bench of a build for this machine"
            ) from None
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise JobConfigError(
                f"--peer {self.program}: ended with {_ending(done.returncode)}, its last line: "
                f"{said[-1] if said else 'none'}; run it alone: {' '.join(command)}"
            )
        return [line for line in done.stdout.splitlines() if line.strip()]

    def _speeds(self, lines: list[str], case: Case) -> Speeds:
        try:
            [result] = [json.loads(line) for line in lines if line.startswith("{")]
            return _checked(result, case, self.threads)
        except (ValueError, KeyError, TypeError) as error:
            raise JobConfigError(
                f"--peer {self.program}: found {lines[-1]!r}, expected one line of JSON with the "
                f"speeds of {case} on {self.threads} threads ({error}); this bench reads the "
                "llama-batched-bench of llama-cpp-python 0.3.36 and those that print alike"
            ) from None


def _checked(result: dict[str, Any], case: Case, threads: int) -> Speeds:
    """The speeds of a printed result.

    Raises:
        KeyError, TypeError, ValueError: it is no result of this case.
    """
    found = {name: result[name] for name in ("pp", "tg", "pl", "n_threads", "is_pp_shared")}
    expected = dict(zip(found, (case.pp, case.tg, case.b, threads, 0), strict=True))
    if found != expected:
        raise ValueError(f"it measured {found}, not {expected}")
    speeds = Speeds(float(result["speed_pp"]), float(result["speed_tg"]))
    if not all(isfinite(speed) and speed > 0 for speed in (speeds.prefill, speeds.decode)):
        raise ValueError(f"no speeds: {speeds.prefill} and {speeds.decode} tokens/s")
    return speeds


def _ending(code: int) -> str:
    """Exit status or signal of a process that failed."""
    if code > 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
