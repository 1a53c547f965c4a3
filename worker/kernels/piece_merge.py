"""SentencePiece's BPE: the best pair of neighbours first, until no pair is a token."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .token_table import find, hash_prefixes

MOST_RANKS = 1 << 22
LONGEST_TEXT = 1 << 30
LONGEST_TOKEN = (1 << 12) - 1

_LENGTH_BITS, _START_BITS = np.uint64(12), np.uint64(30)
_LENGTH_MASK, _START_MASK = np.uint64(LONGEST_TOKEN), np.uint64(LONGEST_TEXT - 1)
_NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)  # no item: its token would be longer than its text


@kernel
def encode_pieces(
    text: NDArray[np.uint32],
    breaks: NDArray[np.int64],
    slots: NDArray[np.int32],
    texts: NDArray[np.uint32],
    powers: NDArray[np.uint64],
    ranks: NDArray[np.int64],
    byte_ids: NDArray[np.int64],
    unknown: int,
    ids: NDArray[np.int64],
) -> int:
    """Encode a text.

    Args:
        text: uint32 [n], n below LONGEST_TEXT: code points.
        breaks: int64 [words]: where each word ends, the last at n; no token spans two words.
        slots: of the tokens, see ``token_table.find``; no token is longer than LONGEST_TOKEN.
        texts: of the same.
        powers: of the same.
        ranks: int64 [vocab_size], below MOST_RANKS: the least is merged first, the leftmost among
            equals.
        byte_ids: int64 [256]: tokens of bytes, -1 for none.
        unknown: token of what has no bytes either, -1 for none.
        ids: int64 [4 n]: receives the tokens.

    Returns:
        How many tokens there are; -1 - place for a character that has none.
    """
    hashes = np.empty(text.size + 1, np.uint64)
    hash_prefixes(text, hashes)
    longest = 0
    start = 0
    for end in breaks:
        longest = max(longest, end - start)
        start = end
    ends = np.empty(longest, np.int32)
    before = np.empty(longest, np.int32)
    queue = np.empty(3 * longest, np.uint64)
    count = 0
    start = 0
    for end in breaks:
        _merge(text, hashes, start, end, slots, texts, powers, ranks, ends, before, queue)
        piece = start
        while piece < end:
            after = start + ends[piece - start]
            token = find(text, hashes, piece, after, slots, texts, powers)
            if token >= 0:
                ids[count] = token
                count += 1
            else:
                spelled = _spell(text[piece], byte_ids, unknown, ids, count)
                if spelled == 0:
                    return -1 - piece
                count += spelled
            piece = after
        start = end
    return count


@kernel
def _merge(
    text: NDArray[np.uint32],
    hashes: NDArray[np.uint64],
    first: int,
    last: int,
    slots: NDArray[np.int32],
    texts: NDArray[np.uint32],
    powers: NDArray[np.uint64],
    ranks: NDArray[np.int64],
    ends: NDArray[np.int32],
    before: NDArray[np.int32],
    queue: NDArray[np.uint64],
) -> None:
    """Merge the pieces of a word.

    A piece is known by where it starts, counted from the word's start. ``ends[start]`` is where it
    ends, 0 once it is part of the piece before; ``before[start]`` is where its left neighbour
    starts. The queue holds texts that two neighbours made when they were put in, see ``_item``.
    """
    size = last - first
    for i in range(size):
        ends[i] = i + 1
        before[i] = i - 1
    waiting = 0
    for i in range(size - 1):
        item = _item(text, hashes, first, i, i + 2, slots, texts, powers, ranks)
        if item != _NOTHING:
            queue[waiting] = item
            waiting += 1
    for place in range((waiting >> 1) - 1, -1, -1):
        _sink(queue, waiting, place, queue[place])
    while waiting > 0:
        item = queue[0]
        waiting -= 1
        _sink(queue, waiting, 0, queue[waiting])
        start = int(np.int64((item >> _LENGTH_BITS) & _START_MASK))
        end = start + int(np.int64(item & _LENGTH_MASK))
        middle = int(ends[start])
        if middle == 0 or middle >= size or ends[middle] != end:
            continue  # one of the two has been merged since
        ends[start] = end
        ends[middle] = 0
        left = int(before[start])
        if left >= 0:
            item = _item(text, hashes, first, left, end, slots, texts, powers, ranks)
            waiting = _put(queue, waiting, item)
        if end < size:
            before[end] = start
            after = int(ends[end])
            item = _item(text, hashes, first, start, after, slots, texts, powers, ranks)
            waiting = _put(queue, waiting, item)


@kernel
def _item(
    text: NDArray[np.uint32],
    hashes: NDArray[np.uint64],
    first: int,
    start: int,
    end: int,
    slots: NDArray[np.int32],
    texts: NDArray[np.uint32],
    powers: NDArray[np.uint64],
    ranks: NDArray[np.int64],
) -> np.uint64:
    """Give a token's rank, start and length in one number, the first to merge the smallest."""
    if end - start >= powers.size:
        return _NOTHING
    token = find(text, hashes, first + start, first + end, slots, texts, powers)
    if token < 0:
        return _NOTHING
    ranked = np.uint64(ranks[token]) << (_START_BITS + _LENGTH_BITS)
    return ranked | (np.uint64(start) << _LENGTH_BITS) | np.uint64(end - start)


@kernel
def _put(queue: NDArray[np.uint64], waiting: int, item: np.uint64) -> int:
    """Put an item into the queue, if it is one; give the queue's length."""
    if item == _NOTHING:
        return waiting
    place = waiting
    while place > 0:
        above = (place - 1) >> 1
        if queue[above] <= item:
            break
        queue[place] = queue[above]
        place = above
    queue[place] = item
    return waiting + 1


@kernel
def _sink(queue: NDArray[np.uint64], waiting: int, place: int, item: np.uint64) -> None:
    """Put an item where there is a gap, and let it sink below what comes before it."""
    while True:
        below = 2 * place + 1
        if below >= waiting:
            break
        if below + 1 < waiting and queue[below + 1] < queue[below]:
            below += 1
        if item <= queue[below]:
            break
        queue[place] = queue[below]
        place = below
    queue[place] = item


@kernel
def _spell(
    character: np.uint32,
    byte_ids: NDArray[np.int64],
    unknown: int,
    ids: NDArray[np.int64],
    count: int,
) -> int:
    """Write a character's bytes, or the unknown token where one is missing; give how many."""
    code = int(character)
    length = 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
    for i in range(length):
        shift = 6 * (length - 1 - i)
        byte = code if length == 1 else 0x80 | ((code >> shift) & 0x3F)
        if i == 0 and length > 1:
            byte = (0xF00 >> length) & 0xFF | (code >> shift)
        ids[count + i] = byte_ids[byte]
        if byte_ids[byte] < 0:
            ids[count] = unknown
            return 1 if unknown >= 0 else 0
    return length
