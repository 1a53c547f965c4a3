"""Sequences for tests that need no engine."""

from kvpool import BlockKeys, BlockTable, BlockTables
from worker.engine.draws import draw_key
from worker.engine.sampling_params import SamplingParams
from worker.engine.sequence import Sequence
from worker.tokenizer.detokenizer import Detokenizer


def byte_piece(token_id):
    """Token i is byte i; tokens from 256 on are control tokens without text."""
    return bytes([token_id]) if token_id < 256 else b""


def make_sequence(
    prompt=(1,),
    *,
    row_id=0,
    max_new=1000,
    end=(),
    tables=None,
    job_seed=0,
    arrival_s=0.0,
    completion_index=0,
    forked_from=None,
    **params,
):
    """A sequence over bytes as tokens."""
    sampling = SamplingParams(**{"max_tokens": None, **params})
    return Sequence(
        row_id=row_id,
        params=sampling,
        prompt_token_ids=tuple(prompt),
        max_tokens=len(prompt) + max_new,
        end_token_ids=frozenset(end),
        tables=BlockTables([BlockTable(4)], BlockKeys(4)) if tables is None else tables,
        draw_key=draw_key(sampling.seed, job_seed, row_id, completion_index),
        detokenizer=Detokenizer(byte_piece),
        arrival_s=arrival_s,
        completion_index=completion_index,
        forked_from=forked_from,
    )
