"""The key figures of a model."""

from worker.gguf import GGUFFile
from worker.gguf.summary import TypeUsage, summarize

from . import gguf_bytes as g


def test_figures_are_those_of_the_file(data):
    """Counts and bytes add up over all tensors; shards count together."""
    first = data / "cases/131-split-complete/model-00001-of-00002.gguf"
    model = GGUFFile.open(first)
    summary = summarize(model)
    assert ("llama", "GGUF 3 in 2 files", 256, "gpt2", 300) == (
        summary.architecture,
        summary.container,
        summary.context_length,
        summary.tokenizer,
        summary.vocab_size,
    )
    assert len(model.tensors) == sum(usage.tensors for usage in summary.types.values())
    assert sum(i.n_bytes for i in model.tensors.values()) == sum(
        usage.n_bytes for usage in summary.types.values()
    )
    assert sum(path.stat().st_size for path in first.parent.glob("*.gguf")) == summary.n_bytes


def test_types_are_listed_by_bytes_and_unsupported_ones_are_told(tmp_path):
    """A file that cannot be run can still be looked at; what it lacks is None."""
    table = [
        g.tensor("a", [8], 0, 0),
        g.tensor("b", [256, 4], 15, 32),
        g.tensor("c", [16], 0, 32 + 1184),
    ]
    path = g.write(tmp_path, g.gguf(tensors=table, data=bytes(1536)))
    summary = summarize(GGUFFile.open(path, any_type=True))
    assert [("Q8_K", TypeUsage(1, 1024, 1168)), ("F32", TypeUsage(2, 24, 96))] == list(
        summary.types.items()
    )
    assert ("Q8_K",) == summary.unsupported_types
    assert 1048 == summary.n_parameters
    assert [None] * 5 == [
        summary.name,
        summary.context_length,
        summary.tokenizer,
        summary.pre_tokenizer,
        summary.vocab_size,
    ]
