"""Which safetensors files a folder's model consists of."""

from collections.abc import Mapping
from pathlib import Path

from worker.errors import CheckpointError
from worker.gguf.wording import shown

from .json_file import MAX_INDEX_BYTES, read_json

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def shard_files(folder: Path) -> list[Path]:
    """List the files of a model, in the order of their names.

    Raises:
        CheckpointError: there are none, or one that the index names is missing.
    """
    names = shard_names(folder)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        listed = ", ".join(map(shown, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise CheckpointError(
            f"{folder}: {listed} is missing ({len(missing)} of the {len(names)} files that {INDEX} "
            "names); copy or download all files into one folder"
        )
    return [folder / name for name in names]


def shard_names(folder: Path) -> list[str]:
    """Name the files of a model, which need not all be there.

    Raises:
        CheckpointError: there is neither an index nor a single file.
    """
    if (folder / INDEX).exists():
        return _of_index(folder / INDEX)
    if (folder / SINGLE).exists():
        return [SINGLE]
    raise _nothing_there(folder)


def _of_index(path: Path) -> list[str]:
    weight_map = read_json(path, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f"{path}: field weight_map is {shown(weight_map)}, expected the file of each tensor; "
            "copy or download the file again"
        )
    return _checked_names(path, weight_map)


def _checked_names(path: Path, weight_map: Mapping[str, object]) -> list[str]:
    """The files named, each once; a name may not lead out of the folder."""
    names = set()
    for name in weight_map.values():
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or not name.endswith(".safetensors")
        ):
            raise CheckpointError(
                f"{path}: {shown(name)} is named as a file, expected the plain name of a "
                "safetensors file in this folder; copy or download the file again"
            )
        names.add(name)
    return sorted(names)


def _nothing_there(folder: Path) -> CheckpointError:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        return CheckpointError(f"{folder}: cannot be listed: {error.strerror}; check the path")
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        return CheckpointError(
            f"{folder}: the weights are in {shown(pickles[0])}, a pickle file, which could run any "
            "program and is never opened; take safetensors files or a GGUF file"
        )
    return CheckpointError(
        f"{folder}: there is neither {SINGLE} nor {INDEX}; name a folder with a whole checkpoint"
    )
