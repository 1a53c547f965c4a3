import hashlib
import json
import random

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cluster import parts as parts_module
from cluster.config import ClusterConfig
from cluster.dataset import InputDataset
from cluster.errors import InputError, JobStoppedError
from cluster.input_columns import InputColumns
from cluster.manifest import Manifest, PartRecord
from cluster.optional_column import OptionalColumn
from cluster.output_columns import output_schema
from cluster.parts import PartWriter
from cluster.plan import CuttingRule, cut_shards
from cluster.reader import read_requests
from cluster.rows import requests_of
from cluster.run_directory import RunDirectory
from cluster.shard_table import shard_table
from tests.cluster.fake_engine import answer, completion_of
from worker.engine.checksum import TokenChecksum
from worker.engine.completion import Completion
from worker.engine.sampling_params import SamplingParams

COMPLETIONS = frozenset({OptionalColumn.COMPLETIONS})


def names_in(folder):
    """Names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def table_of(shard, worker_id="w", optional=frozenset(), answer=answer):
    """The table a worker would send for a shard, rows finished in any order."""
    rows = requests_of(shard.payload, shard.first_row, SamplingParams(), max_n=3)
    completions = [row if isinstance(row, Completion) else answer(row) for row in rows]
    random.Random(shard.first_row).shuffle(completions)
    return shard_table(completions, shard.rows, worker_id=worker_id, attempt=1, optional=optional)


def run_without_ray(
    source, output, rule, *, seed=0, optional=frozenset(), prefix="", answer=answer
):
    """Do all shards in a random order; return the part records and the finished folder."""
    dataset = InputDataset.open(str(source), InputColumns())
    shards = list(cut_shards(read_requests(dataset), rule, [range(dataset.num_rows)]))
    random.Random(seed).shuffle(shards)
    manifest = Manifest(fingerprint={}, inputs=[], cutting=rule, template_date="")
    with RunDirectory.claim(str(output)) as run:
        run.begin(manifest)
        schema = output_schema(dataset.schema, optional, prefix)
        parts = PartWriter(run, dataset, rule, schema, optional)
        records = list(parts.write_ready())
        for shard in shards:
            run.commit_shard(shard.rows, table_of(shard, f"w{seed}", optional, answer))
            parts.add(shard.rows)
            records += parts.write_ready()
        assert parts.is_done
        files = sorted(run.shards.glob("part-*.json"))
        assert records == [PartRecord(**json.loads(file.read_bytes())) for file in files]
        run.finish(manifest.finished(records, 1))
    return records


def test_parts_hold_user_columns_and_results_in_input_order(data, tmp_path):
    """60 rows of six files in three parts; records tell rows, size and hash of each."""
    records = run_without_ray(data / "cases/rows-60", tmp_path, CuttingRule(7, 1000, 25))
    assert [(0, 25), (25, 25), (50, 10)] == [(r.first_row, r.num_rows) for r in records]
    for record in records:
        content = (tmp_path / f"part-{record.index:05d}.parquet").read_bytes()
        assert (record.size, record.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    table = ds.dataset(tmp_path).to_table()
    assert [f"row {i:02d}" for i in range(60)] == table["id"].to_pylist()
    assert ["P", "Q", "R"] == table["generated_text"].to_pylist()[:3]


def test_readers_see_the_rows_of_finished_parts_and_nothing_else(data, tmp_path):
    """PyArrow and DuckDB count the same rows, whatever lies beside the parts."""
    run_without_ray(data / "cases/rows-60", tmp_path, CuttingRule(7, 1000, 25))
    assert 60 == ds.dataset(tmp_path).count_rows()
    query = f"select count(*) from '{tmp_path}/*.parquet'"
    assert [(60,)] == duckdb.connect().execute(query).fetchall()


@pytest.mark.parametrize("case", ["rows-60", "421-one-row-group/rows.parquet"])
def test_part_bytes_do_not_depend_on_shards_order_or_workers(data, tmp_path, case):
    """Other shard borders, another order of commits, other workers: the same SHA-256."""
    rules = [
        CuttingRule(20, 1 << 20, 1250),
        CuttingRule(64, 1 << 20, 1250),
        CuttingRule(90, 400, 1250),
    ]
    hashes = [
        [r.sha256 for r in run_without_ray(data / "cases" / case, tmp_path / str(i), rule, seed=i)]
        for i, rule in enumerate(rules)
    ]
    assert hashes[0] == hashes[1] == hashes[2]


def test_every_type_comes_back_equal(data, tmp_path):
    """64-bit extremes, decimals, time zones, NaN, -0.0, maps, nulls inside lists: unchanged."""
    source = data / "cases/415-types-carried-through/rows.parquet"
    run_without_ray(source, tmp_path, CuttingRule(2, 1000, 2))
    before = pq.read_table(source)
    after = ds.dataset(tmp_path).to_table().select(before.column_names)
    assert before.schema.types == after.schema.types
    assert str(before.to_pylist()) == str(after.to_pylist())


def test_dictionaries_extensions_and_views_come_back_equal(tmp_path):
    """Types that detours over NumPy lose, over several row groups with different dictionaries."""

    def table(words):
        return pa.table(
            {
                "prompt": pa.array(words, pa.large_string()),
                "category": pa.array(words).dictionary_encode(),
                "view": pa.array(words, pa.string_view()),
                "uuid": pa.ExtensionArray.from_storage(
                    pa.uuid(), pa.array([b"u" * 16] * len(words), pa.binary(16))
                ),
                "zero": pa.array([-0.0, None], pa.float32()),
            }
        )

    source = tmp_path / "in.parquet"
    with pq.ParquetWriter(source, table(["a", "b"]).schema) as writer:
        for words in (["a", "b"], ["c", None], ["b", "d"]):
            writer.write_table(table(words))
    run_without_ray(source, tmp_path / "out", CuttingRule(1, 1000, 4))
    before = pq.read_table(source)
    after = ds.dataset(tmp_path / "out").to_table().select(before.column_names)
    assert before.schema.types == after.schema.types
    assert str(before.to_pylist()) == str(after.to_pylist())


def test_folder_names_become_columns_of_the_output(data, tmp_path):
    """``lang=en`` is carried through as text."""
    run_without_ray(data / "cases/417-hive-folder/input", tmp_path, CuttingRule(2, 1000, 10))
    rows = ds.dataset(tmp_path).to_table().to_pylist()
    assert [("en-0", "en"), ("en-1", "en"), ("fr-0", "fr")] == [(r["id"], r["lang"]) for r in rows]


def test_no_rows_give_one_readable_part_with_the_full_schema(data, tmp_path):
    """An empty input is a finished run of zero rows, not an unreadable folder."""
    (record,) = run_without_ray(
        data / "cases/405-no-rows/rows.parquet", tmp_path, CuttingRule(1, 1, 1)
    )
    assert 0 == record.num_rows
    table = ds.dataset(tmp_path).to_table()
    assert (0, ["id", "prompt", "generated_text"]) == (table.num_rows, table.column_names[:3])


def test_a_prefix_and_optional_columns_shape_the_output(data, tmp_path):
    """Columns that were asked for are there, under the prefix; row errors are in ``error``."""
    optional = frozenset({OptionalColumn.PROMPT_TOKENS, OptionalColumn.GENERATED_TOKENS})
    source = data / "cases/413-output-names-taken/rows.parquet"
    run_without_ray(source, tmp_path, CuttingRule(2, 999, 9), optional=optional, prefix="tm_")
    table = ds.dataset(tmp_path).to_table()
    assert pq.read_schema(source).names == table.column_names[:-8]
    assert list(b"yes") == table["tm_generated_tokens"].to_pylist()[0]
    assert list(b"is it?") == table["tm_prompt_tokens"].to_pylist()[0]


@pytest.fixture
def several(tmp_path):
    """Rows of one and of three completions, and one in error; each a row group of its own."""
    columns = {"prompt": ["a?", "b!", None], "sampling_params": [None, *['{"n": 3}'] * 2]}
    path = tmp_path / "several.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1)
    return path


def test_a_column_lists_all_completions_of_a_row(several, tmp_path):
    """The first is ``generated_text``, also where it is the only one; a row in error has none."""
    run_without_ray(several, tmp_path / "out", CuttingRule(2, 999, 9), optional=COMPLETIONS)
    rows = ds.dataset(tmp_path / "out").to_table().to_pylist()
    expected = [["yes"], ["No", "No.", "No.."], None]
    assert [texts and [completion(text) for text in texts] for texts in expected] == [
        row["completions"] for row in rows
    ]
    assert ["yes", "No", None] == [row["generated_text"] for row in rows]
    assert [3, 2, 0] == [row["num_generated_tokens"] for row in rows]


def completion(text):
    """An element of the column."""
    return {"text": text, "finish_reason": "stop", "num_generated_tokens": len(text)}


def test_readers_know_the_type_of_the_completions(several, tmp_path):
    """PyArrow finds a list of structs in the schema, DuckDB takes an element out by its name."""
    run_without_ray(several, tmp_path / "out", CuttingRule(2, 999, 9), optional=COMPLETIONS)
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    fields = {"text": pa.string(), "finish_reason": pa.string(), "num_generated_tokens": pa.int64()}
    assert pa.list_(pa.struct(fields)) == pq.read_schema(part).field("completions").type
    query = f"select completions[3].text from '{part}'"
    assert [(None,), ("No..",), (None,)] == duckdb.connect().execute(query).fetchall()


def test_further_completions_leave_no_column_that_was_not_asked_for(several, tmp_path):
    """Neither their texts nor the tokens that the checksum is made of."""
    run_without_ray(several, tmp_path / "out", CuttingRule(2, 999, 9))
    table = ds.dataset(tmp_path / "out").to_table()
    assert ["num_prompt_tokens", "num_generated_tokens", "error"] == table.column_names[-3:]
    assert 8 == table.num_columns


def test_a_record_counts_the_tokens_of_all_completions(several, tmp_path):
    """3 of the first row, 2 + 3 + 4 of the second."""
    (record,) = run_without_ray(
        several, tmp_path / "out", CuttingRule(2, 999, 9), optional=COMPLETIONS
    )
    assert 12 == record.num_generated_tokens


def test_the_checksum_of_single_completions_is_that_of_their_tokens(data, tmp_path):
    """A row without further completions has the checksum it always had."""
    (record,) = run_without_ray(data / "cases/rows-60", tmp_path, CuttingRule(7, 1000, 99))
    checksum = TokenChecksum()
    for row_id, text in enumerate(ds.dataset(tmp_path).to_table()["generated_text"].to_pylist()):
        checksum.add(row_id, text.encode())
    assert str(checksum) == record.checksum


def test_the_checksum_tells_apart_the_same_tokens_in_other_completions(tmp_path):
    """Every completion counts, an empty one too, and where one ends and the next begins."""
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"prompt": ["x"]}), source)
    answers = ["abc", "abc ", " abc", "ab c", "a bc", "a b c", "c ab", "abc  "]
    checksums = {
        run_without_ray(
            source,
            tmp_path / text,
            CuttingRule(1, 1, 1),
            answer=lambda request, text=text: completion_of(request, *text.split(" ")),
        )[0].checksum
        for text in answers
    }
    assert len(answers) == len(checksums)


def test_a_row_group_is_cut_by_the_tokens_of_all_completions(several, tmp_path, monkeypatch):
    """Many completions of few rows must not add up in memory."""
    monkeypatch.setattr(parts_module, "_ROW_GROUP_BYTES", 64 * 10)
    run_without_ray(several, tmp_path / "out", CuttingRule(2, 999, 9), optional=COMPLETIONS)
    metadata = pq.read_metadata(tmp_path / "out/part-00000.parquet")
    assert [2, 1] == [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def test_string_columns_beyond_two_gigabytes_are_never_put_together(tmp_path):
    """Row groups whose strings add up to more than 2**31 bytes stream through in small pieces."""
    source = tmp_path / "in.parquet"
    schema = pa.schema([("prompt", pa.string()), ("note", pa.string())])
    note = pa.DictionaryArray.from_arrays(pa.array([0] * 70, pa.int32()), ["n" * (32 << 20)])
    table = pa.table({"prompt": ["is it?"] * 70, "note": note})
    pq.write_table(table, source, store_schema=False, compression="zstd")
    assert schema.types == pq.read_schema(source).types
    run_without_ray(source, tmp_path / "out", CuttingRule(16, 1 << 20, 1000))
    assert 70 == ds.dataset(tmp_path / "out").count_rows()


def test_a_full_disk_while_a_part_is_written_keeps_the_shards(data, tmp_path, monkeypatch):
    """No part under its final name; the shards it was made from are still there."""
    from cluster import commit

    dataset = InputDataset.open(str(data / "cases/rows-60"), InputColumns())
    rule = CuttingRule(30, 1 << 20, 60)
    with RunDirectory.claim(str(tmp_path)) as run:
        run.begin(Manifest(fingerprint={}, inputs=[], cutting=rule, template_date=""))
        parts = PartWriter(
            run, dataset, rule, output_schema(dataset.schema, frozenset(), ""), frozenset()
        )
        for shard in cut_shards(read_requests(dataset), rule, [range(60)]):
            run.commit_shard(shard.rows, table_of(shard))
            parts.add(shard.rows)

        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(commit.HashingFile, "write", fail)
        with pytest.raises(JobStoppedError, match="no space left"):
            list(parts.write_ready())
    assert 2 == len([name for name in names_in(tmp_path / "_shards") if name.endswith(".arrow")])
    assert [] == [name for name in names_in(tmp_path) if name.startswith("part")]


def test_user_columns_damaged_after_the_start_are_an_input_error(tmp_path):
    """Damage that only the second reading meets: file and row group named, shards kept."""
    source = tmp_path / "in.parquet"
    pq.write_table(
        pa.table({"prompt": ["x?"] * 20, "note": [f"note {i}" * 50 for i in range(20)]}), source
    )
    content = bytearray(source.read_bytes())
    column = pq.ParquetFile(source).metadata.row_group(0).column(1)
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + 40] = b"\xff" * 40
    source.write_bytes(content)
    with pytest.raises(InputError, match=r"in\.parquet: row group 0"):
        run_without_ray(source, tmp_path / "out", CuttingRule(5, 1000, 20))
    assert [] != names_in(tmp_path / "out" / "_shards")


def test_parts_are_cut_by_configuration_alone(data, tmp_path):
    """part_rows bounds a part's rows."""
    dataset = InputDataset.open(str(data / "cases/rows-60"), InputColumns())
    rule = CuttingRule.for_dataset(dataset, ClusterConfig(part_rows=20), 2)
    assert 3 == len(run_without_ray(data / "cases/rows-60", tmp_path, rule))
