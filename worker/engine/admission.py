"""Admission: from a request to a sequence, or to the reason why the row has no answer."""

from kvpool import BlockTables, KVPool
from worker.errors import TooLongError
from worker.models.rope_config import rotates_as_long
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import Tokenizer

from .draws import draw_key
from .request import Request
from .sequence import Sequence

_LONG_ROOT = b"long"


class Admission:
    """Tokenises requests and checks that they can be run at all."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        encoder: PromptEncoder,
        pool: KVPool,
        max_model_len: int,
        job_seed: int,
        long_from: int | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._pool = pool
        self._max_model_len = max_model_len
        self._job_seed = job_seed
        self._long_from = long_from

    def sequence(self, request: Request, now_s: float) -> Sequence:
        """The request as a sequence, not yet checked.

        Raises:
            RowError: the prompt cannot be made into token ids.
        """
        prompt = tuple(self._encoder.encode(request, max_tokens=self._max_model_len))
        params = request.sampling
        room = self._max_model_len - len(prompt)
        new = room if params.max_tokens is None else min(room, params.max_tokens)
        is_long = rotates_as_long(len(prompt) + new, self._long_from)
        return Sequence(
            row_id=request.row_id,
            params=params,
            prompt_token_ids=prompt,
            max_tokens=len(prompt) + new,
            end_token_ids=self._tokenizer.end_ids,
            tables=new_tables(self._pool, is_long=is_long),
            is_long=is_long,
            draw_key=draw_key(params.seed, self._job_seed, request.row_id),
            detokenizer=self._tokenizer.detokenizer(),
            arrival_s=now_s,
        )

    def fork(self, parent: Sequence, completion_index: int) -> Sequence:
        """Another completion of a row: the same prompt, other draws."""
        params = parent.params
        return Sequence(
            row_id=parent.row_id,
            params=params,
            prompt_token_ids=parent.prompt_token_ids,
            max_tokens=parent.max_tokens,
            end_token_ids=self._tokenizer.end_ids,
            tables=new_tables(self._pool, is_long=parent.is_long),
            is_long=parent.is_long,
            draw_key=draw_key(params.seed, self._job_seed, parent.row_id, completion_index),
            detokenizer=self._tokenizer.detokenizer(),
            arrival_s=parent.arrival_s,
            completion_index=completion_index,
            forked_from=parent,
        )

    def check(self, sequence: Sequence) -> None:
        """Refuse a sequence that could never run.

        Raises:
            TooLongError: more tokens than fit the context or the KV pool.
        """
        prompt = sequence.prompt_token_ids
        if len(prompt) >= self._max_model_len:
            raise TooLongError(
                f"prompt too long: {len(prompt)} tokens leave no room for a completion in a "
                f"context of {self._max_model_len}; shorten the prompt or raise max_model_len"
            )
        if len(prompt) > self._pool.max_sequence_tokens:
            raise pool_too_small(len(prompt), self._pool)


def new_tables(pool: KVPool, *, is_long: bool) -> BlockTables:
    """Tables of a sequence; keys that were rotated otherwise are not those of its tokens."""
    return pool.new_tables(_LONG_ROOT if is_long else b"")


def pool_too_small(num_tokens: int, pool: KVPool) -> TooLongError:
    """Why a row with that many tokens cannot go on, the same in every run."""
    return TooLongError(
        f"needs {num_tokens} or more tokens of KV cache, the pool has {pool.max_sequence_tokens}; "
        "raise kv_pool_tokens or kv_pool_bytes"
    )
