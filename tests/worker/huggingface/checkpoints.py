"""The folders of tests/data, and copies of them that are wrong or different in one place."""

import json
import shutil
from pathlib import Path

import numpy as np

from worker.gguf.mapped_file import MappedFile
from worker.huggingface.safetensors_header import read_header

FOLDERS = Path(__file__).parents[2] / "data" / "huggingface"
NAMES = sorted(path.name for path in FOLDERS.iterdir() if path.is_dir())


def copy(name, to, **fields):
    """A copy of a folder whose config.json has these fields (None: left out)."""
    folder = to / name
    shutil.copytree(FOLDERS / name, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def tensors(folder):
    """Name to (dtype, shape, bytes) of a folder's single file."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    return {
        name: (info.dtype, list(info.shape), content[info.offset : info.offset + info.n_bytes])
        for name, info in read_header(MappedFile(path)).items()
    }


def safetensors(stored, **remarks):
    """The bytes of a file with these tensors."""
    header, data = {"__metadata__": remarks} if remarks else {}, b""
    for name, (dtype, shape, content) in stored.items():
        end = len(data) + len(content)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), end]}
        data += content
    return with_header(json.dumps(header), data)


def with_header(text, data=b""):
    """The bytes of a file with this header, right or wrong."""
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(8, "little") + raw + data


def as_type(stored, dtype):
    """The same BF16 tensors as F16 or F32."""
    short = {"F16": np.float16, "F32": np.float32}[dtype]
    converted = {}
    for name, (_, shape, content) in stored.items():
        values = (np.frombuffer(content, "<u2").astype(np.uint32) << 16).view(np.float32)
        converted[name] = (dtype, shape, values.astype(short).tobytes())
    return converted


def split(folder, count):
    """Replace a folder's single file by several and an index."""
    stored = tensors(folder)
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number in range(count):
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        part = dict(list(stored.items())[number::count])
        (folder / file).write_bytes(safetensors(part, format="pt"))
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
