"""The compiled loop that takes a team of threads through a list of operations.

An operation is a task (see `native`) with its arguments and a number of items. Every thread of the
team runs `run_operations` at the same time, and a barrier stands between an operation and the next.
No thread enters Python in between.

Where the number of items is fixed they are runs of a weight, as they lie in memory: a thread claims
those of its own share, then what is left of the others'. So it walks on without gaps as long as it
can, and what it prefetched behind an item is what it needs next. Items of a batch are in the order
in which they are best begun: all threads claim them from one counter.

A thread that waits at a barrier spins for a while, then sleeps a little between looks: when
another process takes a core, the team slows down softly.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import kernel
from .memory import count_up, load_acquire, store_release
from .native import call_native, word
from .spin import pause

# An operation is four int64 words.
TASK, ARGUMENTS, ITEMS, ITEMS_WORD = range(4)
OPERATION_WORDS = 4

# The program's shared words, two cache lines apart so that no two share one: behind those of the
# barrier a counter for each share of the items: how many of it were claimed.
_ARRIVED, _GENERATION, _COUNTERS = 0, 16, 32
_APART = 16

# How long a thread spins at a barrier: longer than threads usually wait for the last item. Then it
# sleeps at once instead of offering its core: an idle core takes over the thread that is waited for
# from a busy one, and an offered core does not (docs/performance.md, busy neighbour).
_SPIN_NANOSECONDS = 60_000
_PAUSES = 64  # between two looks at the clock
_SLEEP_MICROSECONDS = 20

_INT32 = ir.IntType(32)
_INT64 = ir.IntType(64)


def shared_words(threads: int) -> int:
    """Words that a team shares in `run_operations`, all 0 at first."""
    return _COUNTERS + _APART * threads


@intrinsic
def _sleep(typingctx: Any, microseconds: Any) -> Any:
    """usleep: let the core go for a while."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function_type = ir.FunctionType(_INT32, [_INT32])
        function = cgutils.get_or_insert_function(builder.module, function_type, "usleep")
        builder.call(function, arguments)
        return context.get_dummy_value()

    return types.none(types.int32), codegen


@intrinsic
def _nanoseconds(typingctx: Any, clock: Any) -> Any:
    """clock_gettime: nanoseconds on a clock of the operating system."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        timespec = ir.ArrayType(_INT64, 2)
        place = cgutils.alloca_once(builder, timespec)
        function_type = ir.FunctionType(_INT32, [_INT32, timespec.as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, function_type, "clock_gettime")
        builder.call(function, [builder.trunc(arguments[0], _INT32), place])
        value = builder.load(place)
        seconds = builder.mul(builder.extract_value(value, 0), ir.Constant(_INT64, 10**9))
        return builder.add(seconds, builder.extract_value(value, 1))

    return types.int64(types.int64), codegen


@kernel
def run_operations(
    operations: int, count: int, header: int, shared: int, thread: int, threads: int, clock: int,
    times: int,
) -> None:  # fmt: skip
    """Take one thread of a team through all operations.

    Args:
        operations: address of [count, OPERATION_WORDS] int64: task address, arguments address,
            number of items, and the index of a header word that this is multiplied by (or -1).
        count: operations.
        header: address of the step's int64 words.
        shared: address of `shared_words` int64 words, left ready for another run.
        thread: index of this thread, 0 to threads - 1.
        threads: threads in the team; each of them must call this.
        clock: id of the clock that `times` are taken from.
        times: address of [count] int64: thread 0 adds the nanoseconds each operation took.
    """
    begin = _nanoseconds(clock) if thread == 0 else 0
    for i in range(count):
        at = OPERATION_WORDS * i
        task, arguments = word(operations, at + TASK), word(operations, at + ARGUMENTS)
        items, items_word = word(operations, at + ITEMS), word(operations, at + ITEMS_WORD)
        if items_word >= 0:
            items *= word(header, items_word)
        if threads == 1 or items == 1:
            for item in range(items if thread == 0 else 0):
                call_native(task, (header, arguments, item, thread))
        else:
            shares = threads if items_word < 0 else 1
            for turn in range(shares):
                share = (thread + turn) % shares
                first, end = items * share // shares, items * (share + 1) // shares
                _run_share(task, header, arguments, first, end, shared, share, thread)
        if threads > 1:
            _barrier(shared, threads, clock)
        if thread == 0:
            now = _nanoseconds(clock)
            store_release(times, i, load_acquire(times, i) + now - begin)
            begin = now


@kernel
def _run_share(
    task: int, header: int, arguments: int, first: int, end: int, shared: int, share: int,
    thread: int,
) -> None:  # fmt: skip
    """Run those of the items from first to end - 1 that nobody has claimed yet."""
    counter = _COUNTERS + _APART * share
    if first + load_acquire(shared, counter) >= end:
        return
    item = first + count_up(shared, counter)
    while item < end:
        call_native(task, (header, arguments, item, thread))
        item = first + count_up(shared, counter)


@kernel
def _barrier(shared: int, threads: int, clock: int) -> None:
    """Wait until all threads are here; the last one puts the counters of items back to 0."""
    generation = load_acquire(shared, _GENERATION)
    if count_up(shared, _ARRIVED) == threads - 1:
        store_release(shared, _ARRIVED, 0)
        for share in range(threads):
            store_release(shared, _COUNTERS + _APART * share, 0)
        store_release(shared, _GENERATION, generation + 1)
        return
    begin = _nanoseconds(clock)
    while _nanoseconds(clock) - begin < _SPIN_NANOSECONDS:
        for _ in range(_PAUSES):
            if load_acquire(shared, _GENERATION) != generation:
                return
            pause()
    while load_acquire(shared, _GENERATION) == generation:
        _sleep(_SLEEP_MICROSECONDS)
