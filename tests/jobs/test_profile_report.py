"""The profile of a step as a table and as JSON, with stages of Python and compiled ones."""

from dataclasses import replace

import pytest

from jobs.bench_plan import Case
from jobs.profile_report import REST, PhaseProfile, as_json, profile_lines
from worker.stages import Stages


@pytest.fixture
def profile() -> PhaseProfile:
    """Two decode steps of 10 ms: sampling in Python, attention compiled, norm seen once only."""
    stages = Stages()
    stages.start()
    for _ in range(6):
        stages.add("attention", 0.001)
    stages.add("norm", 0.002)
    stages.add("sampling", 0.008)
    attention, norm, sampling = sorted(stages.stop(), key=lambda record: record.name)
    sampling.dtypes.add("float32")
    return PhaseProfile(
        phase="decode",
        case=Case(8, 2, 4),
        steps=2,
        seconds=0.020,
        stages=(norm, attention, sampling),
        allocations={"attention": None, "sampling": 1234},
    )


def test_compiled_stages_have_times_and_no_more(profile):
    """What is not known of a stage is blank, and its line is there with share and calls."""
    lines = {line.split()[0]: line.split() for line in profile_lines(profile)[2:] if line}
    assert ["attention", "30.0%", "3.000", "3.0"] == lines["attention"]
    assert ["norm", "10.0%", "1.000", "0.5"] == lines["norm"]
    assert ["sampling", "40.0%", "4.000", "0.5", "1,234", "float32", "yes"] == lines["sampling"]


def test_what_is_known_of_no_stage_has_no_column(profile):
    """A step of compiled operations alone is a table of times."""
    for stage in profile.stages:
        stage.dtypes.clear()
    compiled = replace(profile, allocations={})
    assert ["stage", "share", "ms/step", "calls/step"] == profile_lines(compiled)[1].split()


def test_shares_and_the_rest_are_the_whole_step(profile):
    """Nothing of the step is lost between stages and the rest."""
    lines = profile_lines(profile)
    assert "decode of PP 8, TG 2, B 4: 2 steps, 10.000 ms each" == lines[0]
    shares = [float(cell[:-1]) for line in lines for cell in line.split() if cell.endswith("%")]
    assert 100.0 == pytest.approx(sum(shares))
    assert [REST, "20.0%", "2.000"] == [" ".join(lines[-2].split()[:3]), *lines[-2].split()[3:]]


def test_json_says_null_where_nothing_is_known(profile):
    """Readers can tell not traced and no array from zero bytes and not contiguous."""
    stages = {stage["stage"]: stage for stage in as_json(profile)["stages"]}
    for name in ("norm", "attention"):
        assert (None, [], None) == tuple(
            stages[name][key] for key in ("peak_allocated_bytes", "dtypes", "contiguous")
        )
    assert 1234 == stages["sampling"]["peak_allocated_bytes"]
    assert 6 == stages["attention"]["calls"]
