"""BlockTable: absolute, append-only columns."""

from kvpool.block_table import BlockTable


def test_missing_counts_whole_blocks():
    """A token more than a block's worth needs another block."""
    table = BlockTable(16)
    assert [table.missing(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
    table.append([5])
    assert [table.missing(n) for n in (0, 16, 17, 33)] == [0, 0, 1, 2]


def test_columns_keep_their_place_when_the_table_grows():
    """Appending past the capacity moves no column."""
    table = BlockTable(2)
    for block in range(100, 140):
        table.append([block])
    assert table.blocks.tolist() == list(range(100, 140))


def test_drop_before_keeps_the_block_that_holds_the_position():
    """Only blocks wholly before the position go; their columns stay, marked."""
    table = BlockTable(4)
    table.append([9, 8, 7])
    assert table.drop_before(3) == []
    assert table.drop_before(7) == [9]
    assert table.blocks.tolist() == [-1, 8, 7]
    assert table.drop_before(8) == [8]
    assert table.drop_before(8) == []
    assert (table.held, table.first_held) == ([7], 2)
    table.check_invariants()


def test_drop_before_a_negative_position_drops_nothing():
    """A window reaching before the text leaves all blocks."""
    table = BlockTable(4)
    table.append([1, 2])
    assert table.drop_before(-5) == []


def test_drop_before_past_the_end_drops_what_there_is():
    """A position beyond the table never marks columns that do not exist."""
    table = BlockTable(4)
    table.append([1, 2])
    assert table.drop_before(100) == [1, 2]
    assert table.first_held == 2
    table.check_invariants()


def test_clear_returns_what_is_held_and_starts_anew():
    """After clear, a recomputed sequence begins at column 0."""
    table = BlockTable(4)
    table.append([1, 2, 3])
    table.drop_before(4)
    assert table.clear() == [2, 3]
    table.append([6])
    assert (table.blocks.tolist(), table.held) == ([6], [6])
