"""The bench against llama.cpp, with a program that stands for llama-batched-bench."""

import json
import sys
from pathlib import Path
from statistics import median

import pytest

from jobs.bench_pairs import peer_settings
from jobs.bench_peer import PeerSettings
from jobs.bench_plan import Case

from .fake_peer import SCRIPT, SPEEDS


@pytest.fixture
def make_peer(tmp_path):
    """Write the program; `body` runs before it answers, `changes` are put over its answer."""

    def make(body: str = "", changes: dict | None = None) -> Path:
        path = tmp_path / "llama-batched-bench"
        text = SCRIPT.format(python=sys.executable, body=body, speeds=SPEEDS, changes=changes or {})
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def bench(invoke, chain_llama):
    """Run the bench against a peer on the smallest model."""

    def bench(peer: object, *options: object):
        sizes = ("--npp", 8, "--ntg", 3, "--npl", 2, "--threads", 1)
        return invoke("bench", chain_llama, *sizes, "--peer", peer, *options)

    return bench


def calls(peer: Path) -> list[list[str]]:
    """The arguments of every call of the program."""
    return [line.split() for line in peer.with_name("calls.txt").read_text().splitlines()]


def test_the_peer_gets_the_same_file_sizes_and_threads(bench, make_peer, chain_llama):
    """The flags are those of the comparison, the context is that of just these sequences."""
    peer = make_peer()
    assert 0 == bench(peer, "--pairs", 1).exit_code
    expected = f"-m {chain_llama} -t 1 -tb 1 -npp 8 -ntg 3 -npl 2 -c 22 -b 2048 -fa on -ub 512"
    assert [*expected.split(), "--output-format", "jsonl"] == calls(peer)[0]


def test_each_figure_is_compared_with_the_peers_best_settings(bench, make_peer):
    """Prefill meets -fa off here and decode -fa on, and a pair holds the figures of both."""
    result = bench(make_peer(), "--pairs", 3, "-o", "json")
    prefill, decode = json.loads(result.stdout)["results"]
    assert ("prefill", "-fa off -ub 512", 4e-3) == tuple(
        prefill[key] for key in ("figure", "peer_flags", "peer")
    )
    assert ("decode", "-fa on -ub 512", 2e-3) == tuple(
        decode[key] for key in ("figure", "peer_flags", "peer")
    )


def test_ratios_are_those_of_the_pairs(bench, make_peer):
    """The ratio is the median of the pairs' own ratios, and its range their extremes."""
    result = bench(make_peer(), "--pairs", 3, "-o", "json")
    for figure in json.loads(result.stdout)["results"]:
        ratios = [pair["ours"] / pair["peer"] for pair in figure["pairs"]]
        assert 3 == len(ratios)
        assert median(ratios) == figure["ratio"]
        assert [min(ratios), max(ratios)] == figure["ratio_range"]
        assert median(pair["ours"] for pair in figure["pairs"]) == figure["ours"]


def test_pairs_alternate_and_take_the_other_order_each_time(monkeypatch, make_peer, chain_llama):
    """Ours first, then the peer first, and so on: neither always runs on the warmer machine."""
    from jobs import bench_pairs
    from jobs.bench_peer import Peer, Speeds

    order = []
    speeds = Speeds(1.0, 1.0)
    monkeypatch.setattr(bench_pairs, "_our_speeds", lambda *_: order.append("ours") or speeds)
    monkeypatch.setattr(Peer, "measure", lambda *_: order.append("peer") or speeds)
    case, settings = Case(8, 3, 2), PeerSettings("on", 512)
    peer = Peer(program=make_peer(), model=chain_llama, threads=1)
    trials = [bench_pairs.Trial(settings, speeds)]
    bench_pairs.compare(None, peer, case, trials, 3)
    assert ["ours", "peer", "peer", "ours", "ours", "peer"] == order


def test_all_settings_are_tried_where_they_differ():
    """The large batch of llama.cpp is another setting only for prompts beyond the small one."""
    assert ["-fa on -ub 512", "-fa off -ub 512"] == list(map(str, peer_settings(Case(128, 64, 4))))
    assert 4 == len(set(peer_settings(Case(128, 64, 5))))


def test_the_table_shows_ratio_range_and_flags(bench, make_peer):
    """What is read first stands on one line a figure."""
    lines = bench(make_peer(), "--pairs", 2).stdout.splitlines()
    assert "figure PP TG B ours t/s peer t/s ratio range peer's flags" == " ".join(lines[0].split())
    assert ["prefill", "decode"] == [line.split()[0] for line in lines[1:3]]
    assert lines[1].endswith("-fa off -ub 512")
    assert {"1 threads, 2 pairs", "compute: int8"} <= set(lines)


def test_a_run_that_lost_its_output_is_run_again(bench, make_peer):
    """llama-batched-bench ends now and then before its line is written; that is no failure."""
    result = bench(make_peer("if earlier < 2: sys.exit(0)"), "--pairs", 1)
    assert 0 == result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("body", "changes", "message"),
    [
        ("sys.exit(0)", {}, "printed no result in 5 runs of PP 8, TG 3, B 2"),
        ("print('no model', file=sys.stderr); sys.exit(1)", {}, "exit status 1, its last line: no"),
        ("import os; os.kill(os.getpid(), 11)", {}, "ended with signal SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", {}, "signal SIGKILL, its last line: none"),
        ("print('| 8 | 3 | 2 |'); sys.exit(0)", {}, "found '| 8 | 3 | 2 |', expected one line"),
        ("print('{}')", {}, "expected one line of JSON"),
        ("print('{\"pp\":'); sys.exit(0)", {}, "expected one line of JSON"),
        ("", {"pl": 1}, "it measured"),
        ("", {"n_threads": 8}, "it measured"),
        ("", {"is_pp_shared": 1}, "it measured"),
        ("", {"speed_tg": "inf"}, "no speeds"),
        ("", {"speed_pp": 0.0}, "no speeds"),
        ("", {"speed_pp": "fast"}, "expected one line of JSON"),
        # The trials are over, and one of the pairs' runs fails: no ratio of the others.
        ("if earlier == 6: sys.exit(3)", {}, "exit status 3"),
    ],
)
def test_no_ratio_without_sound_runs(bench, make_peer, body, changes, message):
    """Whatever the peer does wrong is one line that says it, and standard output stays empty."""
    result = bench(make_peer(body, changes))
    assert 2 == result.exit_code
    assert message in result.stderr.splitlines()[-1]
    assert "" == result.stdout


def test_a_peer_that_cannot_run_is_refused_before_anything_is_measured(bench, tmp_path):
    """No file, a folder, a file that is no program: the path and the fix are named."""
    missing, plain, foreign = tmp_path / "missing", tmp_path / "plain", tmp_path / "foreign"
    plain.write_text("text")
    foreign.write_bytes(b"\x7fELF, but not really")
    foreign.chmod(0o755)
    for peer, message in (
        (missing, "found nothing, expected the program llama-batched-bench"),
        (tmp_path, "found a folder"),
        (plain, "not executable"),
        (foreign, "cannot be started"),
    ):
        result = bench(peer)
        assert 2 == result.exit_code
        assert f"--peer {peer}" in result.stderr.splitlines()[-1]
        assert message in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pairs", 2), "--pairs 2 needs --peer"),
        (("--peer", "x", "--profile"), "--peer and --profile"),
        (("--peer", "x", "--dequant-cache-layers", "2"), "leave out --dequant-cache-layers"),
    ],
)
def test_no_option_is_ignored(invoke, chain_llama, options, message):
    """Options that do not go together are a usage error."""
    result = invoke("bench", chain_llama, *options)
    assert 2 == result.exit_code
    assert message in result.stderr
