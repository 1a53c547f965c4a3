import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.config import ClusterConfig
from cluster.dataset import InputDataset
from cluster.errors import InputError
from cluster.input_columns import InputColumns
from cluster.plan import CuttingRule, cut_shards
from cluster.reader import batch_rows, read_requests, read_user_columns
from cluster.row_sizes import row_sizes


def dataset_of(folder, files):
    """Write files, each a list of row groups, each a list of prompts; open them as a dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, groups in enumerate(files):
        schema = pa.schema([("prompt", pa.string())])
        with pq.ParquetWriter(folder / f"{index:03d}.parquet", schema) as writer:
            for prompts in groups:
                writer.write_table(pa.table({"prompt": prompts}, schema))
    return InputDataset.open(str(folder), InputColumns())


def prompts_of(shard):
    """The prompts in a shard's payload."""
    table = pa.ipc.open_stream(shard.payload).read_all()
    return [None if value is None else value.decode() for value in table["prompt"].to_pylist()]


def naive_cuts(prompts, rule):
    """Row ranges by the rule, one row after the other."""
    cuts, start, size = [], 0, 0
    for row, prompt in enumerate(prompts):
        size += len((prompt or "").encode())
        full = row + 1 - start == rule.shard_rows or size >= rule.shard_bytes
        if full or (row + 1) % rule.part_rows == 0 or row + 1 == len(prompts):
            cuts.append(range(start, row + 1))
            start, size = row + 1, 0
    return cuts


files_of_prompts = st.lists(
    st.lists(st.lists(st.none() | st.text(max_size=6), max_size=12), max_size=3),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(
    files=files_of_prompts,
    rule=st.builds(CuttingRule, st.integers(1, 9), st.integers(1, 30), st.integers(1, 15)),
    data=st.data(),
)
def test_shards_are_cut_by_the_rule_wherever_one_starts(tmp_path_factory, files, rule, data):
    """The cuts are those of a row-by-row twin, from row 0 and from the start of any part."""
    dataset = dataset_of(tmp_path_factory.mktemp("in"), files)
    prompts = [prompt for groups in files for group in groups for prompt in group]
    part = data.draw(st.integers(0, rule.num_parts(len(prompts)) - 1))
    first = part * rule.part_rows
    expected = [rows for rows in naive_cuts(prompts, rule) if rows.start >= first]
    shards = list(cut_shards(read_requests(dataset, first), rule, [range(first, len(prompts))]))
    assert expected == [shard.rows for shard in shards]
    assert prompts[first:] == [prompt for shard in shards for prompt in prompts_of(shard)]


@settings(max_examples=40, deadline=None)
@given(files=files_of_prompts, sizes=st.lists(st.integers(1, 9), max_size=30))
def test_a_cursor_gives_every_row_once_however_it_is_read(tmp_path_factory, files, sizes):
    """Reading n rows at a time gives the rows in order, across row groups and files."""
    dataset = dataset_of(tmp_path_factory.mktemp("in"), files)
    reader, found = read_user_columns(dataset), []
    for size in [*sizes, dataset.num_rows]:
        for batch in reader.read(size):
            found += batch.column("prompt").to_pylist()
    assert [prompt for groups in files for group in groups for prompt in group] == found


def test_one_row_group_is_spread_over_shards(data):
    """3000 rows in a single row group become many shards, several for each of three workers."""
    dataset = InputDataset.open(str(data / "cases/421-one-row-group"), InputColumns())
    rule = CuttingRule.for_dataset(dataset, ClusterConfig(), 3)
    shards = list(cut_shards(read_requests(dataset), rule, [range(dataset.num_rows)]))
    assert 3000 == sum(shard.num_rows for shard in shards)
    assert 12 <= len(shards)


def test_small_data_is_cut_small_enough_for_every_worker(data):
    """60 rows over two workers give each several shards; more workers change no part."""
    dataset = InputDataset.open(str(data / "cases/rows-60"), InputColumns())
    rules = [CuttingRule.for_dataset(dataset, ClusterConfig(), workers) for workers in (1, 2, 100)]
    assert [15, 7, 1] == [rule.shard_rows for rule in rules]
    assert 1 == len({rule.part_rows for rule in rules})


def test_wide_rows_make_parts_of_fewer_rows(tmp_path):
    """A part stays near part_bytes when the footers say that rows are wide."""
    prompts = [f"{row:04d}" * 500 for row in range(100)]
    dataset = dataset_of(tmp_path, [[prompts]])
    rule = CuttingRule.for_dataset(dataset, ClusterConfig(part_bytes=20_000), 1)
    assert 9 <= rule.part_rows <= 10


def test_a_repeated_huge_value_is_read_a_few_rows_at_a_time(tmp_path):
    """A dictionary repeats 4 MiB a thousand times in a small file; no batch holds a thousand."""
    indices = pa.array([0] * 1000, pa.int32())
    table = pa.table({"prompt": pa.DictionaryArray.from_arrays(indices, ["a" * (4 << 20)])})
    pq.write_table(table, tmp_path / "x.parquet", store_schema=False)
    dataset = InputDataset.open(str(tmp_path), InputColumns())
    assert 40 >= batch_rows(dataset.files[0].row_groups[0])
    assert (4 << 20) * 41 >= next(iter(read_requests(dataset).read(1000))).nbytes


def test_sizes_of_rows_count_text_at_any_depth():
    """Strings, lists of structs and nulls are sized without Python seeing a value."""
    message = [{"role": "user", "content": "héé"}, {"role": "a", "content": None}]
    batch = pa.RecordBatch.from_pydict(
        {
            "prompt": pa.array(["ab", None, "é"], pa.large_string()),
            "messages": pa.array([message, None, []]),
            "n": pa.array([1, 2, 3]),
        }
    ).slice(0, 3)
    assert [2 + 4 + 5 + 1 + 8, 8, 2 + 8] == row_sizes(batch).tolist()
    assert [8, 2 + 8] == row_sizes(batch.slice(1)).tolist()


def test_a_damaged_data_page_names_file_and_row_group(tmp_path):
    """Damage between the rows is found when its turn comes; the rows before it are read."""
    dataset = dataset_of(
        tmp_path, [[["x"] * 50], [["y" * 100] * 5, ["z" * 999 + str(i) for i in range(50)]]]
    )
    path = tmp_path / "001.parquet"
    content = bytearray(path.read_bytes())
    middle = content.index(b"zzzz")
    content[middle - 60 : middle + 400] = b"\xff" * 460
    path.write_bytes(content)
    reader = read_requests(dataset)
    assert 55 == sum(batch.num_rows for batch in reader.read(55))
    with pytest.raises(InputError, match=r"001\.parquet: row group 1 "):
        list(reader.read(50))


def test_a_file_that_vanishes_is_an_input_error(tmp_path):
    """Inputs must stay while a run lasts; the message names the file."""
    dataset = dataset_of(tmp_path, [[["x"]]])
    (tmp_path / "000.parquet").unlink()
    with pytest.raises(InputError, match=r"000\.parquet"):
        list(read_requests(dataset).read(1))


CHANGES = {
    "gone": lambda path: path.unlink(),
    "longer": lambda path: path.write_bytes(path.read_bytes() * 2),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "another file of the same shape": lambda path: pq.write_table(
        pa.table({"prompt": ["other"]}), path
    ),
    "another column": lambda path: pq.write_table(pa.table({"prompts": ["later"]}), path),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_after_the_check_is_never_read_as_another(tmp_path, change):
    """Its size and footer are looked at again when its turn comes; a touch is no change."""
    dataset = dataset_of(tmp_path, [[["first"]], [["later"]]])
    (tmp_path / "001.parquet").touch()
    assert 2 == sum(batch.num_rows for batch in read_requests(dataset).read(2))
    CHANGES[change](tmp_path / "001.parquet")
    with pytest.raises(InputError, match=r"001\.parquet: "):
        list(read_requests(dataset).read(2))
