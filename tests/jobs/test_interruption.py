"""Both signals as one interruption, until the outcome of a command is settled."""

import signal

import pytest

from jobs import interruption as module
from jobs.interruption import Interruption


@pytest.fixture
def watching():
    """Watch for signals in this process; its handlers are put back."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    interruption = Interruption()
    interruption.watch()
    yield interruption
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    times = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: times[0])
    return times


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_interrupts_under_its_name(watching, name):
    """SIGTERM ends a command as Ctrl-C does."""
    with pytest.raises(KeyboardInterrupt, match=name):
        signal.raise_signal(signal.Signals[name])


def test_signals_that_come_together_interrupt_once(watching, clock):
    """A second exception would hit the handling of the first; one much later is meant."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    clock[0] = 1.5
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)


def test_a_lost_interruption_is_found_by_a_check(watching):
    """Python drops what is raised in a callback; the signal is not forgotten with it."""
    watching.check()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        watching.check()


def test_nothing_changes_a_settled_outcome(watching):
    """Whoever sends signals to a command that is about to end does not get another exit code."""
    watching.settle()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)


def test_a_program_that_calls_a_verb_keeps_its_handlers():
    """Without ``watch`` nothing is touched."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    Interruption().settle()
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
