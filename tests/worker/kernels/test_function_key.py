"""Names of functions for the code cache."""

import pytest
from numba.extending import intrinsic

from worker.kernels.function_key import function_key
from worker.kernels.native import Native


@intrinsic
def _nothing(typingctx):
    return None


def _make(value):
    def multiply(x):
        return x * value

    return multiply


def _make_other(value):
    def multiply(x):
        return x * value

    return multiply


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), (1, True), (1, 1.0), ("a", "b"), ((1, 2), (12,)), (None, 0), (_make(1), _make(2))],
)
def test_what_a_closure_holds_changes_the_name(one, other):
    """Functions made by one function differ by the values that they close over."""
    assert function_key(_make(one)) != function_key(_make(other))
    assert function_key(_make(one)) == function_key(_make(one))


def test_place_and_details_change_the_name():
    """Equal text elsewhere is another function; so is the function for other types."""
    names = [
        function_key(_make(1)),
        function_key(_make_other(1)),
        function_key(_make(1), "int64"),
        function_key(_make(1), "int64", 1),
    ]
    assert 4 == len(set(names))
    assert all(name.startswith("test_function_key.multiply-") for name in names)


def test_kernels_and_intrinsics_are_named_by_their_functions():
    """Two objects of the same function are alike, as they are in two processes."""
    natives = [function_key(_make(Native(_make(1), 1))) for _ in range(2)]
    assert natives[0] == natives[1] == function_key(_make(_make(1)))
    assert function_key(_make(_nothing)) == function_key(_make(_nothing._defn))


def test_other_things_in_a_closure_are_refused():
    """What has no lasting name would never be found again, or taken for something else."""
    with pytest.raises(TypeError, match=r"multiply: value\[1\] is a list"):
        function_key(_make((1, [2])))


def test_functions_that_no_file_holds_are_named_by_their_code():
    """As in an interactive session; equal code has one name."""
    typed = [eval(f"lambda: {value}", {"__name__": "typed.in"}) for value in (1, 1, 2)]
    names = [function_key(function) for function in typed]
    assert (True, False) == (names[0] == names[1], names[1] == names[2])
