"""The logits that an engine samples from, noted before it does: what the contract is about."""

from collections import defaultdict
from hashlib import blake2b

import numpy as np


class LogitsLog:
    """Takes the place of an engine's sampler: notes every row of logits, then lets it sample.

    A row is noted as the hash of its float32 bits, or None where a greedy row kept no logits, with
    its most likely token and that token's logit.
    """

    def __init__(self, engine):
        self._sampler, self._vocab_size = engine._sampler, engine.tokenizer.vocab_size
        self._seen = defaultdict(list)
        engine._sampler = self

    def sample(self, logits, sequences):
        """Note the rows of a step, one a sequence, and sample."""
        for r, sequence in enumerate(sequences):
            seen = self._seen[sequence.row_id, sequence.completion_index]
            assert len(seen) == sequence.num_generated_tokens, "a position was sampled twice"
            seen.append(self._note(logits, r))
        return self._sampler.sample(logits, sequences)

    def take(self, completion):
        """What was noted for each completion of a row, position by position; forgets it."""
        count = 1 + len(completion.others)
        return [tuple(self._seen.pop((completion.row_id, index), ())) for index in range(count)]

    def _note(self, logits, r):
        assert logits.rows.dtype == np.float32, logits.rows.dtype
        bits = logits.rows[r, : self._vocab_size].tobytes() if logits.kept[r] else None
        whole = None if bits is None else blake2b(bits, digest_size=16).hexdigest()
        return whole, int(logits.best_token[r]), logits.best_value[r].tobytes()
