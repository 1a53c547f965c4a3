"""The demo itself, without Ray: what its summary shows follows from its configuration."""

import re

import pyarrow.parquet as pq

from jobs.config import load_config
from worker.engine.checksum import TokenChecksum
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams
from worker.errors import RowError

from .conftest import ROOT

STATED = re.search(r"^checksum +(\w{16})", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)


def _request(row_id, row, config):
    """A row of the demo as its worker gets it; None where the sampling parameters are bad."""
    try:
        sampling = SamplingParams.from_mapping(row["sampling_params"] or {}, config.sampling)
    except RowError:
        return None
    return Request(row_id=row_id, prompt=row["prompt"], messages=row["messages"], sampling=sampling)


def test_every_share_of_the_demo_is_preempted_and_finds_prefixes(smollm2):
    """Two workers with every other row each: seven errors, and the checksum that README states."""
    config = load_config(ROOT / "configs/demo.yaml", {})
    rows = pq.read_table(ROOT / "configs/demo-prompts.parquet").to_pylist()
    requests = [_request(row_id, row, config) for row_id, row in enumerate(rows)]
    checksum, failed = TokenChecksum(), requests.count(None)
    for row_id, request in enumerate(requests):
        if request is None:
            checksum.add(row_id, ())
    for worker in range(2):
        engine = Engine.from_gguf(smollm2, config.engine)
        share = [request for request in requests[worker::2] if request is not None]
        for completion in engine.generate(share):
            checksum.add(completion.row_id, completion.token_ids)
            failed += completion.error is not None
        stats = engine.stats.snapshot()
        engine.close()
        assert min(stats.preemptions, stats.preempted_hits, stats.prefix_cache_hits) > 0
    assert (7, STATED[1]) == (failed, str(checksum))
