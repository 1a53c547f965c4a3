import errno
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.dataset import InputDataset
from cluster.errors import InputError, JobConfigError
from cluster.input_columns import InputColumns

NO_FOOTER = "has no footer: it is incomplete or still being written"


def open_dataset(path, **columns):
    """Open with these columns named."""
    return InputDataset.open(str(path), InputColumns(**columns))


def write(path, **columns):
    """Write a Parquet file of these columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def refusal(kind, path, **columns):
    """The message with which opening fails, an error of that kind."""
    with pytest.raises(kind) as caught:
        open_dataset(path, **columns)
    return str(caught.value)


def says(message, *parts):
    """Whether a message is one line and holds all parts."""
    return "\n" not in message and all(part in message for part in parts)


def test_row_ids_follow_the_bytewise_order_of_relative_paths(tmp_path):
    """Files are ordered by the bytes of their path below the root, not by locale or by folder."""
    for name in ("b.parquet", "a/2.parquet", "a/10.parquet", "B.parquet", "a.parquet", "é.parquet"):
        write(tmp_path / name, prompt=["x", "y"])
    dataset = open_dataset(tmp_path)
    expected = ["B.parquet", "a.parquet", "a/10.parquet", "a/2.parquet", "b.parquet", "é.parquet"]
    assert expected == [file.relative for file in dataset.files]
    assert [0, 2, 4, 6, 8, 10] == [file.first_row for file in dataset.files]


def test_hidden_names_are_skipped_and_hive_folders_become_columns(data):
    """``_SUCCESS`` and ``.crc`` files are no input; ``lang=en`` is a column."""
    dataset = open_dataset(data / "cases/417-hive-folder/input")
    assert 3 == dataset.num_rows
    assert ["id", "prompt", "lang"] == dataset.schema.names
    assert [(("lang", "en"),), (("lang", "fr"),)] == [file.partitions for file in dataset.files]


def test_a_column_of_the_file_wins_over_its_folder_name(tmp_path):
    """A partition column that the file holds itself is taken from the file."""
    write(tmp_path / "lang=en/a.parquet", prompt=["x"], lang=["own"])
    assert ((),) == tuple(file.partitions for file in open_dataset(tmp_path).files)


def test_hive_values_are_decoded_and_the_null_folder_is_null(tmp_path):
    """``%2F`` in a folder's value is a slash; Hive's default partition means null."""
    write(tmp_path / "k=a%2Fb/x.parquet", prompt=["x"])
    write(tmp_path / "k=__HIVE_DEFAULT_PARTITION__/x.parquet", prompt=["x"])
    files = open_dataset(tmp_path).files
    assert {(("k", None),), (("k", "a/b"),)} == {file.partitions for file in files}


def test_an_existing_path_is_taken_literally(data):
    """Accents, CJK, blanks, ``#``, ``%20`` and ``?`` in a name mean themselves."""
    path = data / "cases/419-odd-file-name/entrée/提示 1 #%20?.parquet"
    assert ["提示 1 #%20?.parquet"] == [file.relative for file in open_dataset(path).files]


def test_a_file_name_that_is_not_utf8_is_read(tmp_path):
    """A name of arbitrary bytes opens; messages show it readably."""
    write(tmp_path / "a.parquet", prompt=["x"])
    odd = tmp_path / os.fsdecode(b"\xff.parquet")
    try:
        (tmp_path / "a.parquet").rename(odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert 1 == open_dataset(tmp_path).num_rows
    odd.write_bytes(b"PAR1")
    assert says(refusal(InputError, tmp_path), "\N{REPLACEMENT CHARACTER}.parquet")


def test_a_glob_pattern_selects_files(tmp_path):
    """Wildcards select; the root is the folder before the first of them."""
    for name in ("in/a.parquet", "in/b.parquet", "in/_c.parquet", "in/sub/d.parquet", "in/e.txt"):
        write(tmp_path / name, prompt=["x"])
    found = open_dataset(tmp_path / "in" / "**" / "*.parquet").files
    assert ["a.parquet", "b.parquet", "sub/d.parquet"] == [file.relative for file in found]


@pytest.mark.parametrize("name", ["nothing-here", "nothing*.parquet"])
def test_an_input_that_is_not_there_is_an_input_error(tmp_path, name):
    """A missing path or an empty match names the path."""
    assert says(refusal(InputError, tmp_path / name), name)


def test_an_empty_folder_is_an_input_error(tmp_path):
    """A folder with skipped names alone is refused, not taken for zero rows."""
    (tmp_path / "_SUCCESS").touch()
    assert says(refusal(InputError, tmp_path), str(tmp_path), "no Parquet files")


def test_a_loop_of_links_is_refused(tmp_path):
    """A symbolic link to a folder above does not send us round for ever."""
    write(tmp_path / "a" / "x.parquet", prompt=["x"])
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert says(refusal(InputError, tmp_path), "symbolic link")


def test_links_to_files_and_folders_are_followed(tmp_path):
    """Data sets in caches are made of links."""
    write(tmp_path / "store/x.parquet", prompt=["x"])
    (tmp_path / "in").mkdir()
    (tmp_path / "in/folder").symlink_to(tmp_path / "store")
    (tmp_path / "in/file.parquet").symlink_to(tmp_path / "store/x.parquet")
    assert 2 == open_dataset(tmp_path / "in").num_rows


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (
            "423-footer-length-wrong/input",
            ["input/b.parquet", "2147483632", "damaged or incomplete"],
        ),
        ("427-encrypted-file/rows.parquet", ["rows.parquet", "encrypted"]),
        ("439-half-written-input/input", ["input/b.parquet", NO_FOOTER]),
    ],
)
def test_bad_footers_name_the_file(data, case, names):
    """A footer that is missing, encrypted or does not fit the file is found before any row."""
    assert says(refusal(InputError, data / "cases" / case), *names)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "too short"),
        (b"PAR1PAR1", "too short"),
        (b"id,prompt\n1,hello\n", "not a Parquet file"),
    ],
)
def test_files_that_are_no_parquet_name_themselves(tmp_path, content, name):
    """An empty file and a CSV file under a Parquet name are refused by name, in a folder too."""
    (tmp_path / "notes.parquet").write_bytes(content)
    assert says(refusal(InputError, tmp_path), "notes.parquet", name)


def test_a_folder_is_read_for_parquet_files_by_name_or_first_bytes(tmp_path):
    """A README is no input; a Parquet file without a suffix is, half-written ones included."""
    write(tmp_path / "data", prompt=["x"])
    (tmp_path / "README.md").write_text("# about the data")
    assert ["data"] == [file.relative for file in open_dataset(tmp_path).files]
    (tmp_path / "data.tmp").write_bytes((tmp_path / "data").read_bytes()[:-50])
    assert says(refusal(InputError, tmp_path), "data.tmp", NO_FOOTER)


def test_a_damaged_footer_is_an_input_error_wherever_the_damage_is(data, tmp_path):
    """Any byte of the footer overwritten gives a dataset or an InputError, never a crash."""
    sound = (data / "cases/small.parquet").read_bytes()
    length = int.from_bytes(sound[-8:-4], "little")
    outcomes = set()
    for offset in range(len(sound) - 8 - length, len(sound) - 8, 7):
        damaged = bytearray(sound)
        damaged[offset] ^= 0xFF
        (tmp_path / "x.parquet").write_bytes(damaged)
        try:
            open_dataset(tmp_path / "x.parquet")
            outcomes.add("read")
        except (InputError, JobConfigError) as error:
            outcomes.add(type(error).__name__)
    assert "InputError" in outcomes


def test_encrypted_columns_under_a_readable_footer_are_found(tmp_path):
    """A file whose columns are encrypted is refused up front; pyarrow would abort the process."""
    import base64

    import pyarrow.parquet.encryption as pe

    class Keys(pe.KmsClient):
        def wrap_key(self, key_bytes, _):
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key, _):
            return base64.b64decode(wrapped_key)

    settings = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["prompt"]}, plaintext_footer=True
    )
    properties = pe.CryptoFactory(lambda _: Keys()).file_encryption_properties(
        pe.KmsConnectionConfig(), settings
    )
    table = pa.table({"prompt": ["a"], "x": [1]})
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    assert says(refusal(InputError, path), "x.parquet", "encrypted")


def test_types_that_differ_between_files_are_refused(data):
    """The message names the column, both files and both types."""
    names = ["score", "input/a.parquet", "input/b.parquet", "int64", "string"]
    assert says(refusal(JobConfigError, data / "cases/425-schemas-conflict/input"), *names)


def test_a_column_that_some_files_lack_is_refused(tmp_path):
    """A column of one file that another lacks has no value there; both files are named."""
    write(tmp_path / "a.parquet", prompt=["x"], extra=[1])
    write(tmp_path / "b.parquet", prompt=["x"])
    assert says(refusal(JobConfigError, tmp_path), "extra", "a.parquet", "b.parquet")


def test_the_order_of_columns_may_differ_between_files(tmp_path):
    """Columns are matched by name."""
    write(tmp_path / "a.parquet", id=[1], prompt=["x"])
    write(tmp_path / "b.parquet", prompt=["y"], id=[2])
    assert ["id", "prompt"] == open_dataset(tmp_path).schema.names


def test_duplicate_columns_are_refused(data):
    """Two columns of one name: file and column are named."""
    path = data / "cases/411-duplicate-user-columns/rows.parquet"
    assert says(refusal(JobConfigError, path), "rows.parquet", "score")


@pytest.mark.parametrize(
    ("file", "type_"), [("ints.parquet", "int64"), ("lists.parquet", "list<element: string>")]
)
def test_a_prompt_of_a_wrong_type_is_refused(data, file, type_):
    """The message names file, column, the type found and the type needed."""
    path = data / "cases/437-prompt-of-wrong-type" / file
    assert says(refusal(JobConfigError, path), file, "prompt", type_, "string")


@pytest.mark.parametrize(
    "type_",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_every_kind_of_text_is_a_prompt(tmp_path, type_):
    """string, large_string, string_view and dictionaries of them hold prompts."""
    plain = pa.array(["x", None, "y"])
    column = (
        plain.dictionary_encode().cast(type_)
        if pa.types.is_dictionary(type_)
        else plain.cast(type_)
    )
    write(tmp_path / "a.parquet", prompt=column)
    assert "prompt" == open_dataset(tmp_path / "a.parquet").columns.prompt


@pytest.mark.parametrize("messages", [[1], [["x"]], [{"role": "user"}]])
def test_messages_of_a_wrong_type_are_refused(tmp_path, messages):
    """Numbers, lists of strings and single structs are no conversations."""
    write(tmp_path / "a.parquet", messages=messages)
    assert says(
        refusal(JobConfigError, tmp_path / "a.parquet"), "a.parquet", "messages", "list of struct"
    )


def test_sampling_params_of_a_wrong_type_are_refused(tmp_path):
    """A column of numbers cannot hold sampling parameters."""
    write(tmp_path / "a.parquet", prompt=["x"], sampling_params=[0.5])
    assert says(
        refusal(JobConfigError, tmp_path / "a.parquet"), "sampling_params", "double", "struct"
    )


def test_neither_prompt_nor_messages_is_refused(tmp_path):
    """The message lists the columns there are."""
    write(tmp_path / "a.parquet", question=["x"])
    assert says(refusal(JobConfigError, tmp_path / "a.parquet"), "prompt or messages", "question")


def test_a_column_that_was_named_must_be_there_and_is_the_only_one(tmp_path):
    """With ``prompt`` given, a messages column that happens to exist is not used."""
    write(tmp_path / "a.parquet", question=["x"], messages=["[]"])
    used = open_dataset(tmp_path / "a.parquet", prompt="question").columns
    assert ["question"] == used.names()
    assert says(refusal(JobConfigError, tmp_path / "a.parquet", prompt="query"), "no column query")
    assert says(
        refusal(JobConfigError, tmp_path / "a.parquet", sampling_params="sp"), "no column sp"
    )


def test_metadata_of_unknown_extension_types_is_kept(tmp_path):
    """A type this pyarrow does not know travels in its field's metadata."""
    field = pa.field("x", pa.int32(), metadata={"ARROW:extension:name": "their.type"})
    table = pa.table(
        [pa.array(["p"]), pa.array([1], pa.int32())], pa.schema([("prompt", "string"), field])
    )
    pq.write_table(table, tmp_path / "a.parquet")
    kept = open_dataset(tmp_path / "a.parquet").schema.field("x").metadata
    assert {b"ARROW:extension:name": b"their.type"} == kept


def test_the_manifest_sees_a_changed_footer(tmp_path):
    """The footer's hash follows the content, not the time."""
    write(tmp_path / "a.parquet", prompt=["x"])
    before = open_dataset(tmp_path).files[0].footer_sha256
    os.utime(tmp_path / "a.parquet", (1, 1))
    assert before == open_dataset(tmp_path).files[0].footer_sha256
    write(tmp_path / "a.parquet", prompt=["x", "y"])
    after = open_dataset(tmp_path).files[0].footer_sha256
    assert before != after
    assert re.fullmatch("[0-9a-f]{64}", after)


def test_a_pipe_is_refused_or_skipped_and_never_waited_for(tmp_path):
    """By a Parquet name it is an error, otherwise no data; opening it would hang."""
    write(tmp_path / "in/a.parquet", prompt=["x"])
    os.mkfifo(tmp_path / "in/pipe")
    assert 1 == open_dataset(tmp_path / "in").num_rows
    assert says(refusal(InputError, tmp_path / "in/pipe"), "pipe", "not a regular file")
    (tmp_path / "in/pipe").rename(tmp_path / "in/pipe.parquet")
    assert says(refusal(InputError, tmp_path / "in"), "pipe.parquet", "not a regular file")


@pytest.mark.parametrize("name", ["n" * 300, "loop", "s3://bucket/a.parquet"])
def test_a_path_that_cannot_be_opened_is_an_input_error(tmp_path, monkeypatch, name):
    """A name too long, a link to itself and a URL: one line that names them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert says(refusal(InputError, name), name)


@pytest.mark.parametrize("pattern", ["in", "in/*", "in/**/*.parquet", "in/secret/*"])
def test_a_folder_that_may_not_be_read_is_an_input_error(tmp_path, monkeypatch, pattern):
    """Passing over it would lose its rows without a word, whatever names it."""
    write(tmp_path / "in/secret/a.parquet", prompt=["x"])
    write(tmp_path / "in/b.parquet", prompt=["x"])
    iterdir = Path.iterdir

    def refusing(folder):
        if folder.name == "secret":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", refusing)
    assert says(refusal(InputError, tmp_path / pattern), "in/secret", "Permission denied")


def test_a_pattern_does_not_follow_a_loop_of_links(tmp_path):
    """Round and round, the same rows would be there forty times."""
    write(tmp_path / "a/x.parquet", prompt=["x"])
    (tmp_path / "a/up").symlink_to(tmp_path)
    assert says(refusal(InputError, tmp_path / "**" / "*.parquet"), "symbolic link")
    assert 1 == open_dataset(tmp_path / "*" / "*.parquet").num_rows


def test_a_pattern_takes_folders_whole_and_each_file_once(tmp_path):
    """``x.parquet`` may be a folder of parts; ``**`` finds the parts themselves too."""
    write(tmp_path / "in/x.parquet/part-0.parquet", prompt=["x"])
    write(tmp_path / "in/x.parquet/deep/part-1.parquet", prompt=["x"])
    for pattern in ("in/*.parquet", "in/**/*.parquet", "in/**", "in/[xy].*/**/part-?.parquet"):
        assert 2 == open_dataset(tmp_path / pattern).num_rows


def test_an_unsupported_compression_is_refused_before_any_row(tmp_path):
    """A sound footer that names LZO: file, codec and what to do, and nothing of damage."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"prompt": ["x"] * 9}), path, compression="snappy")
    snappy, lzo = b"\x06prompt\x15\x02", b"\x06prompt\x15\x06"  # the path, then field 4: codec
    path.write_bytes(path.read_bytes().replace(snappy, lzo))
    assert says(refusal(InputError, tmp_path), "x.parquet", "LZO", "compressed by zstd or snappy")


@pytest.mark.parametrize(
    ("column", "there", "hint"),
    [
        (None, "Prompt", "did you mean Prompt?"),
        ("texts", "text", "did you mean text?"),
        ("doc.text", "doc", "doc is struct<text: string>: make its field a column"),
    ],
)
def test_a_missing_column_names_what_was_meant(tmp_path, column, there, hint):
    """Another case, a slip, or a field inside a column."""
    values = [{"text": "x"}] if there == "doc" else ["x"]
    write(tmp_path / "x.parquet", **{there: values})
    assert says(
        refusal(JobConfigError, tmp_path, prompt=column), "x.parquet", column or "prompt", hint
    )


def test_a_missing_column_names_few_of_very_many(tmp_path):
    """A table of 300 columns gives a line, not a page."""
    write(tmp_path / "x.parquet", **{f"c{index}": [0] for index in range(300)})
    assert says(refusal(JobConfigError, tmp_path), "c19 and 280 more")


def test_tools_stand_beside_messages(tmp_path):
    """A column tools is used where there are messages, and is the user's own elsewhere."""
    path = tmp_path / "in.parquet"
    write(path, messages=["[]"], tools=["[]"], functions=["[]"])
    assert "tools" == open_dataset(path).columns.tools
    assert "functions" == open_dataset(path, tools="functions").columns.tools
    assert says(refusal(JobConfigError, path, tools="nope"), "column nope")
    write(path, prompt=["a"], tools=[1])
    assert open_dataset(path).columns.tools is None
    assert says(refusal(JobConfigError, path, tools="tools"), "no messages")
    write(path, messages=["[]"], tools=[1])
    assert says(refusal(JobConfigError, path), "column tools is int64")
