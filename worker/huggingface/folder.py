"""A checkpoint folder in Hugging Face layout, opened as the GGUF file it would become."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.errors import CheckpointError, UnsupportedModelError
from worker.gguf import ModelFile, TensorInfo
from worker.gguf.mapped_file import MappedFile
from worker.gguf.model_file import files_text
from worker.gguf.wording import shown

from .config import Config
from .families import FAMILIES
from .family import Family, check_experts
from .json_file import read_json
from .metadata import FolderMetadata
from .mxfp4 import Mxfp4, joined_mxfp4
from .readings import QTYPES, Reading, Stacked, Stored
from .safetensors_header import read_header
from .shards import shard_files

CONFIG = "config.json"
OPTIONAL_FILES = (
    *("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    *("special_tokens_map.json", "added_tokens.json"),
)
"""What may stand beside config.json and the weights and shapes what comes out."""

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_ADAPTER_VERSION = 1  # raised when a folder is read as other tensors than before


class HuggingFaceFolder(ModelFile):
    """A folder with ``config.json`` and safetensors files.

    Metadata and tensors have the names and the form that llama.cpp's converter gives them; what
    needs another order of rows, a sum or a stack is made when it is read. Pickle files are never
    opened.

    Attributes: see `ModelFile`; besides
        files: paths of the safetensors files.
    """

    files: tuple[Path, ...]

    def __init__(
        self,
        path: Path,
        metadata: FolderMetadata,
        files: list[MappedFile],
        readings: Mapping[str, Reading],
    ) -> None:
        self.path = path
        self.container = f"safetensors{files_text(len(files))}"
        self.metadata = metadata
        self.files = tuple(file.path for file in files)
        self.n_bytes = sum(file.size for file in files)
        self.tensors = MappingProxyType(
            {name: TensorInfo(name, each.shape, each.qtype, 0) for name, each in readings.items()}
        )
        self._files = files
        self._side_files = [MappedFile(file) for file in _side_files(path)]
        self._readings = readings

    @classmethod
    def open(cls, path: Path | str) -> "HuggingFaceFolder":
        """Map a folder's safetensors files and check their headers.

        Raises:
            CheckpointError: a file is missing or not sound.
            UnsupportedModelError: the checkpoint is of a kind that tokenmill cannot run.
            GGUFError: a file cannot be opened.
        """
        path = Path(path)
        fields = read_json(path / CONFIG)
        family = _family(path / CONFIG, fields)
        config = Config(path / CONFIG, {**family.defaults, **_text_fields(path / CONFIG, fields)})
        _check_not_quantised(config, allows_mxfp4=bool(family.mxfp4))
        metadata = family.metadata(config)
        files = [MappedFile(file) for file in shard_files(path)]
        readings = _readings(family, config, _stored(path, files))
        named = {"general.name": path.resolve().name, **metadata}
        return cls(path, FolderMetadata(path / CONFIG, named), files, readings)

    def rows(self, name: str, first: int, last: int) -> NDArray[np.uint8]:
        """Give rows first to last of a tensor, see `ModelFile.rows`."""
        self.tensor(name)
        return self._readings[name].rows(first, last)

    def check_unchanged(self) -> None:
        """Check that no file was changed since it was opened, see `ModelFile`."""
        for file in self._files:
            file.check_unchanged()

    def sha256(self) -> str:
        """Hash all files that are open, see `ModelFile`."""
        return folder_sha256([file.sha256() for file in (*self._side_files, *self._files)])

    def release(self, name: str) -> None:
        """Give the pages of a tensor's sources back to the system, see `ModelFile`."""
        self.tensor(name)
        self._readings[name].release()

    def close(self) -> None:
        """Let the maps go, see `ModelFile`."""
        self._files, self._readings = [], {}
        self.tensors = MappingProxyType({})


def model_files(path: Path) -> list[Path]:
    """List the files of a folder that its model depends on: JSON files, then weights.

    Raises:
        CheckpointError: a file of weights is missing.
    """
    return [*_side_files(path), *shard_files(path)]


def folder_sha256(hashes: list[str]) -> str:
    """Hash a folder from the hashes of its `model_files`, in lower-case hexadecimal."""
    lines = [f"hugging face folder {_ADAPTER_VERSION}", *hashes]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _side_files(path: Path) -> list[Path]:
    return [file for name in (CONFIG, *OPTIONAL_FILES) if (file := path / name).is_file()]


def _family(path: Path, fields: Mapping[str, Any]) -> Family:
    classes = fields.get("architectures")
    known = {name: family for family in FAMILIES for name in family.classes}
    name = classes[0] if isinstance(classes, list) and classes else None
    if not isinstance(name, str):
        raise CheckpointError(
            f"{path}: field architectures is {shown(classes)}, expected a list with the model's "
            "class; take a complete checkpoint"
        )
    if name not in known:
        raise UnsupportedModelError(
            f"{path}: the model is a {shown(name)}, which tokenmill cannot run from a folder; "
            f"supported: {', '.join(sorted(known))}"
        )
    return known[name]


def _text_fields(path: Path, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the text model, which may stand apart from those of what it sees or hears."""
    inner = fields.get("text_config")
    if inner is None:
        return fields
    if not isinstance(inner, dict):
        raise Config(path, fields).wrong("text_config", inner, "an object")
    return {**fields, **inner}


def _check_not_quantised(config: Config, *, allows_mxfp4: bool) -> None:
    quantisation = config.get("quantization_config")
    if quantisation is not None:
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else None
        if allows_mxfp4 and method == "mxfp4":
            return
        raise UnsupportedModelError(
            f"{config.path}: the checkpoint is quantised ({shown(method)}), only BF16, F16 and F32 "
            "are read from folders; take the unquantised checkpoint or a GGUF file"
        )


def _stored(path: Path, files: list[MappedFile]) -> dict[str, Stored]:
    stored: dict[str, Stored] = {}
    for file in files:
        for name, info in read_header(file).items():
            if name in stored:
                raise CheckpointError(
                    f"{path}: tensor {shown(name)} is in both {stored[name].file.path.name} and "
                    f"{file.path.name}; copy or download the folder again"
                )
            stored[name] = Stored(file, info)
    return stored


def _readings(
    family: Family, config: Config, stored: Mapping[str, Stored]
) -> Mapping[str, Reading]:
    """Tensors by GGUF name; one that has no place keeps its own and is refused by the model."""
    readings: dict[str, Reading] = dict(family.extra(config))
    experts: dict[str, dict[int, Reading]] = {}
    named = {own: each for name, each in stored.items() if (own := family.own_name(name))}
    if family.mxfp4:
        in_mxfp4, named = joined_mxfp4(named)
        readings |= _mxfp4_readings(family, in_mxfp4)
    for name, source in named.items():
        _check_type(name, source)
        match = family.targets(name)
        if match is None:
            readings[name] = source
            continue
        for target, make in match.targets.items():
            if match.expert is None:
                readings[target] = make(source, config)
            else:
                experts.setdefault(target, {})[match.expert] = make(source, config)
    for target, parts in experts.items():
        readings[target] = _stack(config, target, parts)
    return _with_head(family, config, readings)


def _mxfp4_readings(family: Family, stored: Mapping[str, Mxfp4]) -> Mapping[str, Reading]:
    readings: dict[str, Reading] = {}
    for name, source in stored.items():
        match = family.mxfp4_targets(name)
        if match is None:
            readings[name] = source
            continue
        readings |= {target: make(source) for target, make in match.targets.items()}
    return readings


def _check_type(name: str, source: Stored) -> None:
    if source.info.dtype not in QTYPES or source.info.n_bytes == 0:
        raise UnsupportedModelError(
            f"{source.file.path}: tensor {shown(name)} is {source.info.dtype} of shape "
            f"{list(source.info.shape)}; values of {', '.join(QTYPES)} are read from folders: take "
            "the unquantised checkpoint or a GGUF file"
        )


def _stack(config: Config, name: str, parts: Mapping[int, Reading]) -> Reading:
    check_experts(config, name, list(parts))
    sources = [parts[number] for number in range(len(parts))]
    if len({(source.shape, source.qtype) for source in sources}) > 1:
        raise CheckpointError(
            f"{config.path.parent}: the experts of tensor {shown(name)} differ in shape or type; "
            "copy or download the folder again"
        )
    return Stacked(sources)


def _with_head(
    family: Family, config: Config, readings: dict[str, Reading]
) -> Mapping[str, Reading]:
    """A head that is tied to the embedding is left out, as in GGUF files."""
    tied = config.get("tie_word_embeddings", family.ties_embeddings)
    if tied is True:
        readings.pop(_HEAD, None)
    elif _HEAD not in readings:
        raise CheckpointError(
            f"{config.path}: field tie_word_embeddings is {shown(tied)}, but the files hold no "
            "output head (lm_head.weight); copy or download the folder again"
        )
    return readings
