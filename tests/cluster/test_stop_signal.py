import signal

import pytest

from cluster.errors import InputError, JobStoppedError
from cluster.stop_signal import stop_signal


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_interrupts_while_there_is_nothing_to_end(name):
    """It is named in the message."""
    with pytest.raises(JobStoppedError, match=f"stopped by {name}"), stop_signal():
        signal.raise_signal(signal.Signals[name])


def test_a_deferred_signal_is_noted_and_a_second_one_interrupts():
    """The loop ends in good order on the first; who is in a hurry sends another."""

    def body(stop):
        stop.defer()
        signal.raise_signal(signal.SIGTERM)
        assert "SIGTERM" == stop.name
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second signal did not interrupt")

    assert "stopped by SIGINT" == str(stopped(body))


def test_a_deferred_signal_interrupts_where_it_is_checked():
    """What could not be interrupted is over, and the signal is not forgotten."""

    def body(stop):
        stop.check()
        stop.defer()
        signal.raise_signal(signal.SIGTERM)
        stop.check()
        pytest.fail("the signal was forgotten")

    assert "stopped by SIGTERM" == str(stopped(body))


def test_a_third_signal_leaves_the_way_out_alone():
    """It would put another exception in place of the second's."""

    def body(_):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            with pytest.raises(KeyboardInterrupt, match="SIGINT"):
                signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    assert "stopped by SIGINT" == str(stopped(body))


def test_what_breaks_after_a_signal_is_a_stop():
    """Ray's processes get the signals of a group, too; the error is named and kept as the cause."""
    error = stopped(fail_after_a_signal, OSError("gone"))
    assert "stopped by SIGTERM, after which OSError was raised: gone" == str(error)
    assert isinstance(error.__cause__, OSError)


def test_an_error_of_ours_keeps_its_kind_after_a_signal():
    """It has its own message and exit code."""
    with pytest.raises(InputError), stop_signal() as stop:
        fail_after_a_signal(stop, InputError("x"))


@pytest.mark.parametrize("error", [ValueError("x"), InputError("x"), KeyboardInterrupt()])
def test_what_breaks_without_a_signal_is_what_it_is(error):
    """Nothing is taken for a stop that is none."""
    with pytest.raises(type(error)), stop_signal():
        raise error


def stopped(body, *arguments):
    """What the block raises in which ``body`` runs."""
    with pytest.raises(JobStoppedError) as caught, stop_signal() as stop:
        body(stop, *arguments)
    return caught.value


def fail_after_a_signal(stop, error):
    """Break while a signal waits."""
    stop.defer()
    signal.raise_signal(signal.SIGTERM)
    raise error


def test_the_handlers_before_are_put_back():
    """A library must leave its caller's handlers alone."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_signal():
        assert before != (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
