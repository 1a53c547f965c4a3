"""A cache folder with one thing of each kind, and things that are the user's own."""

from pathlib import Path

from worker.packed_index import PackedIndex

from .packed_models import NAMES, open_model

KERNELS, MODEL = "0123456789abcdef0123", "dist-1.0-0123456789ab"
HUB = "models--owner--name"


def fill(cache: Path, models: Path) -> None:
    """Write them; ``models`` is where the packed model comes from."""
    contents = {
        f"kernels/{KERNELS}/a.nbc": b"code",
        f"models/{MODEL}/m.gguf": b"GGUF" * 2000,
        f"huggingface/{HUB}/blobs/b": b"blob",
        f"hashes/{'0' * 64}": b"hash",
        f"tokenizers/{'0' * 64}": b"pieces",
        "packed/.writing-abc": b"half",
        "packed/.lock": b"",
        "packed-limit.json": b"1000000",
        "kernels/mine/a": b"user",
        "models/my-models/m.gguf": b"user",
        "hashes/mine": b"user",
        "notes.txt": b"user",
    }
    for name, content in contents.items():
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(content)
    index = PackedIndex.of(open_model(models, name="small.gguf"), NAMES)
    packed = index.header + bytes(index.n_bytes)
    (cache / "packed" / f"{index.key}.packed").write_bytes(packed)


def packed_name(cache: Path) -> str:
    """The packed file's name."""
    [path] = (cache / "packed").glob("[0-9a-f]*.packed")
    return f"packed/{path.stem}"


def files(cache: Path) -> set[str]:
    """All files there are."""
    return {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()}


OWN = {"kernels/mine/a", "models/my-models/m.gguf", "hashes/mine", "notes.txt"}
"""The user's own files."""

KEPT = OWN | {"packed-limit.json", "packed/.lock"}
"""What is left when everything is removed."""
