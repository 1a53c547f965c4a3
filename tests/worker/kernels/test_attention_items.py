"""Attention's items of work: every query and K/V head once, the longest first."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.kernels.attention import ITEM_WORDS, MOST_PARTS, QUERY_TILE, RANGE
from worker.kernels.attention_items import attention_items, most_attention_items


def _batch(spans):
    """query_start and positions of (first position, tokens) spans."""
    starts = np.cumsum([0, *(tokens for _, tokens in spans)], dtype=np.int32)
    positions = np.concatenate([np.arange(first, first + n) for first, n in spans])
    return starts, positions.astype(np.int32)


def cut(spans, heads, window, threads):
    """The items of (first position, tokens) spans: int32 [items, ITEM_WORDS]."""
    starts, positions = _batch(spans)
    room = most_attention_items(len(positions), len(spans), heads)
    items = np.full((room, ITEM_WORDS), -9, np.int32)
    return items[: attention_items(starts, positions, heads, window, threads, items)]


some_spans = st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 40)), min_size=1, max_size=9)


@settings(deadline=None)  # the first one compiles
@given(
    spans=some_spans,
    heads=st.integers(1, 3),
    window=st.one_of(st.none(), st.integers(1, 5000)),
    threads=st.integers(1, 16),
)
def test_every_range_of_every_query_is_taken_once(spans, heads, window, threads):
    """Tiles stay within a sequence; parts of a tile share a slot that no other has."""
    starts, positions = _batch(spans)
    items = cut(spans, heads, window, threads)
    taken = Counter()
    slots = Counter()
    for sequence, head, first, end, part, parts, slot in items.tolist():
        assert starts[sequence] <= first < end <= starts[sequence + 1]
        assert end - first <= QUERY_TILE
        low = 0 if window is None else max(0, int(positions[first]) - window + 1)
        ranges = int(positions[end - 1]) // RANGE - low // RANGE + 1
        assert parts in (1, ranges if end - first == 1 else 1)
        taken.update((token, head, part, parts) for token in range(first, end))
        if parts > 1:
            slots[slot + part] += 1
    whole = Counter()
    for token, head, part, parts in taken:
        assert 0 <= part < parts
        whole[token, head] += 1.0 / parts
    assert {(t, h) for t in range(len(positions)) for h in range(heads)} == set(whole)
    assert all(abs(share - 1) < 1e-9 for share in whole.values())
    assert set(taken.values()) == {1}
    assert all(0 <= slot < MOST_PARTS and count == 1 for slot, count in slots.items())


def test_a_lone_row_s_ranges_are_spread_over_the_threads():
    """One sequence of 3,000 tokens, two heads, four threads: three parts each."""
    items = cut([(2999, 1)], 2, None, 4)
    expected = [(0, head, 0, 1, part, 3, 3 * head) for head in (0, 1) for part in range(3)]
    assert [list(item) for item in expected] == items.tolist()


def test_nothing_is_spread_where_items_abound_or_a_thread_is_alone():
    """Parts cost a little more than a whole."""
    alone = cut([(2999, 1)], 2, None, 1)
    many = cut([(2999, 1)] * 8, 2, None, 4)
    assert {1} == set(alone[:, 5].tolist()) == set(many[:, 5].tolist())


def test_no_more_parts_than_there_is_room_for():
    """Rows of many tokens: those that fit are spread, the others are not."""
    items = cut([(300_000, 1), (900_000, 1)], 1, None, 8)
    assert ITEM_WORDS == items.shape[1]
    assert [(1, 879)] * 879 + [(0, 1)] == [(s, parts) for s, _, _, _, _, parts, _ in items.tolist()]


def test_long_items_come_first():
    """By keys that are seen times queries, up to a factor of two; the window counts."""
    items = cut([(5, 1), (400, 20), (150, 1)], 1, None, 1)
    assert [[1, 17], [17, 21], [21, 22], [0, 1]] == items[:, 2:4].tolist()
    windowed = cut([(5, 1), (400, 1), (300, 1)], 1, 4, 1)
    assert [0, 1, 2] == windowed[:, 0].tolist()
