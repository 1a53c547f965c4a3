"""No wall clock is compared: who reads one, and what for."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cluster", "jobs", "kvpool", "worker")
WALL_CLOCKS = {"time", "time_ns", "now", "utcnow", "today", "gmtime", "localtime"}

FOR_PEOPLE_AND_TEMPLATES = {
    "cluster/journal.py": "when a driver last wrote, to be read by people",
    "cluster/lease.py": "against the same machine's monotonic one, which may stand still in sleep",
    "cluster/lock.py": "since when a driver holds the folder, to be read by people",
    "cluster/run_job.py": "the date that chat templates see, kept in the manifest",
    "worker/engine/prompting.py": "the same, without a job",
    "jobs/inspection.py": "the same, for an example",
}


def reads_wall_clock(source):
    """Whether a module calls a clock that can be set."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(ast.unparse(call.func).rsplit(".", 1)[-1] in WALL_CLOCKS for call in calls)


def test_a_wall_clock_is_read_for_people_and_templates_alone():
    """Timeouts, rates and signs of life go by monotonic clocks, each machine's own."""
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        if reads_wall_clock(path.read_text(encoding="utf-8"))
    }
    assert set(FOR_PEOPLE_AND_TEMPLATES) == found


def test_the_search_finds_wall_clocks():
    """Under each of their names, and no monotonic one."""
    for call in ("time.time()", "time()", "datetime.datetime.now(UTC)", "date.today()"):
        assert reads_wall_clock(call)
    assert not reads_wall_clock("monotonic(); perf_counter(); time.monotonic()")
