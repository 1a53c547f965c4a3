"""Models split over several files, ``NAME-00001-of-0000N.gguf`` and on."""

import re
from dataclasses import dataclass
from pathlib import Path

from worker.errors import GGUFError

from .metadata import Metadata

COUNT_KEY = "split.count"
NUMBER_KEY = "split.no"
TENSORS_KEY = "split.tensors.count"
_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShardName:
    """The parts of a shard's file name; ``number`` counts from 1."""

    folder: Path
    stem: str
    number: int
    count: int

    @classmethod
    def of(cls, path: Path) -> "ShardName | None":
        """Take a name apart; None when it does not follow the pattern."""
        match = _NAME.fullmatch(path.name)
        if match is None:
            return None
        return cls(path.parent, match["stem"], int(match["number"]), int(match["count"]))

    def sibling(self, number: int) -> Path:
        """Give the path of another shard of the same model."""
        return self.folder / f"{self.stem}-{number:05}-of-{self.count:05}.gguf"


def other_shards(path: Path, metadata: Metadata) -> list[Path]:
    """List the files that belong to the model besides ``path``, in order.

    Raises:
        GGUFError: ``path`` is a shard, but not the first one, is not named like one, or its
            siblings are not all there.
    """
    count = metadata.integer(COUNT_KEY, 1)
    if count <= 1:
        return []
    name = _checked_name(path, metadata.integer(NUMBER_KEY), count)
    siblings = [name.sibling(number) for number in range(2, count + 1)]
    missing = [sibling.name for sibling in siblings if not sibling.exists()]
    if missing:
        listed = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise GGUFError(
            f"{path}: this is the first of {count} shards and {listed} is missing "
            f"({len(missing)} not found in {path.parent}); put all shards into one folder"
        )
    return siblings


def _checked_name(path: Path, number: int, count: int) -> ShardName:
    name = ShardName.of(path)
    if name is None or (name.number, name.count) != (number + 1, count):
        raise GGUFError(
            f"{path}: this is shard {number + 1} of {count} by its metadata ({NUMBER_KEY} {number}"
            f", {COUNT_KEY} {count}), but its name does not end in "
            f"-{number + 1:05}-of-{count:05}.gguf; give all shards their original names"
        )
    if number != 0:
        first = name.sibling(1)
        fix = "" if first.exists() else ", which is missing: put all shards into one folder"
        raise GGUFError(
            f"{path}: this is shard {number + 1} of {count}; name the first shard, "
            f"{first.name}{fix}"
        )
    return name


def check_shard(path: Path, metadata: Metadata, number: int, first: Metadata) -> None:
    """Check that a sibling says the same of itself as its name and the first shard do.

    Raises:
        GGUFError: naming the shard, the key and both values.
    """
    expected = {NUMBER_KEY: number, COUNT_KEY: first.integer(COUNT_KEY)}
    if TENSORS_KEY in first:
        expected[TENSORS_KEY] = first.integer(TENSORS_KEY)
    for key, value in expected.items():
        found = metadata.integer(key)
        if found != value:
            raise GGUFError(
                f"{path}: key {key} is {found}, expected {value} as {first.path.name} promises; "
                "the shards are of different models: copy or download them again"
            )
