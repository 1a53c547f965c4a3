"""TokenChecksum: one value for a set of rows, in any order."""

from itertools import permutations

from worker.engine.checksum import TokenChecksum

ROWS = [(0, (1, 2)), (1, (1, 2)), (2, ()), (3, (7,))]


def _sum(rows):
    checksum = TokenChecksum()
    for row_id, tokens in rows:
        checksum.add(row_id, tokens)
    return str(checksum)


def test_order_of_rows_does_not_count():
    """Every order of the rows has one checksum."""
    assert len({_sum(rows) for rows in permutations(ROWS)}) == 1


def test_everything_else_counts():
    """A row's id, its tokens, their order, a row more: each changes the checksum."""
    variants = [
        ROWS,
        ROWS[:-1],
        [*ROWS, ROWS[0]],
        [*ROWS[1:], (0, (2, 1))],
        [*ROWS[1:], (9, (1, 2))],
        [*ROWS[:2], (2, (0,)), ROWS[3]],
        [(0, (7,)), ROWS[1], ROWS[2], (3, (1, 2))],
    ]
    assert len({_sum(rows) for rows in variants}) == len(variants)


def test_parts_merge_to_the_whole():
    """Checksums of workers add up to that of the job."""
    whole, part = TokenChecksum(), TokenChecksum()
    for row_id, tokens in ROWS[:2]:
        whole.add(row_id, tokens)
    for row_id, tokens in ROWS[2:]:
        part.add(row_id, tokens)
    whole.merge(part)
    assert str(whole) == _sum(ROWS)


def test_value_is_fixed():
    """The checksum of these rows is the same on every machine and in every release."""
    assert _sum(ROWS) == "aaee51ec0ca7125a"
