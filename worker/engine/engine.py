"""Engine: continuous batching on one machine, requests in, completions out."""

from collections.abc import Hashable, Iterable, Iterator
from collections.abc import Sequence as Rows
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Self

from kvpool import PoolCapacity
from worker.errors import EngineConfigError, NumbersError, RowError
from worker.models.model import Model

from .admission import Admission, pool_too_small
from .completion import Completion, FinishReason
from .config import EngineConfig
from .kv_setup import build_kv
from .loading import LoadedModel, load
from .model_runner import ModelRunner
from .request import Request, RowId
from .row import Row
from .sampler import Sample, Sampler
from .scheduler import LOOK_AHEAD, ScheduledChunk, Scheduler
from .sequence import Ending, Sequence
from .stats import EngineStats

NON_FINITE = NumbersError(
    "non-finite logits: the model computed NaN or infinity; check the model file"
)


class Engine:
    """Completes requests with one model.

    What a row gets depends on the model, the row and the settings named in EngineConfig alone,
    never on the other rows. Not thread-safe: one thread adds, steps and reads.

    Attributes:
        config: the settings.
        model: the model.
        tokenizer: the model's tokenizer.
        encoder: makes a request's token ids.
        kv: the K/V arrays.
        max_model_len: most tokens of a row, prompt and completion together.
        numerics: names the arithmetic; equal identities give equal tokens.
        stages: where a step's time goes, while recording.
        stats: counters; ``stats.snapshot()`` for everything at one moment.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        """Reserve the KV pool for a loaded model; ``from_gguf`` is the usual way.

        Raises:
            EngineConfigError, PoolSizeError: the settings cannot work with this model or machine.
        """
        self.config = config
        self.model = model = loaded.model
        self.tokenizer, self.encoder = loaded.tokenizer, loaded.encoder
        # Attention adds up a block of keys after the other: another size, other roundings.
        self.numerics = f"{model.numerics}; {config.kv_cache_dtype} keys and values"
        self.stages, self._team = loaded.stages, loaded.team
        self.max_model_len = _max_model_len(config, model)
        self._pool, self.kv = build_kv(model, config, self.max_model_len)
        limits = {
            "max_num_seqs": config.max_num_seqs,
            "max_num_batched_tokens": config.max_num_batched_tokens,
        }
        self._scheduler = Scheduler(self._pool, **limits)
        self._runner = ModelRunner(model, self.kv, **limits)
        self._sampler = Sampler(self.tokenizer.vocab_size, self._team)
        self._admission = Admission(
            tokenizer=self.tokenizer,
            encoder=self.encoder,
            pool=self._pool,
            max_model_len=self.max_model_len,
            job_seed=config.job_seed,
            long_from=model.config.long_from,
        )
        self.stats = EngineStats(self._scheduler, self._pool, model)
        self._live: dict[RowId, Row] = {}
        self._rows: dict[Sequence, Row] = {}
        self._greedy: dict[Hashable, Row] = {}  # rows that equal ones can join
        self._done: dict[RowId, Completion] = {}

    @classmethod
    def from_gguf(cls, path: Path | str, config: EngineConfig | None = None) -> Self:
        """Load a GGUF file.

        Raises:
            ModelError: the file cannot be used.
            EngineConfigError, PoolSizeError: the settings cannot work with it or on this machine.
        """
        config = config or EngineConfig()
        return cls(load(Path(path), config), config)

    @property
    def kv_capacity(self) -> PoolCapacity:
        """What fits into the KV pool."""
        return self._pool.capacity

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has something to compute or to return."""
        return bool(self._live or self._done)

    def add_request(self, request: Request) -> None:
        """Take a request; a row that cannot be completed is answered by the next ``step``.

        Raises:
            ValueError: another request of that row id is still here.
        """
        self._add(request, joins=self.config.deduplicate)

    def step(self) -> list[Completion]:
        """Compute one batch; the completions that became known, in the order they did."""
        self._advance()
        done = list(self._done.values())
        self._done.clear()
        return done

    def limit_running(self, max_running: int) -> None:
        """Let at most so many rows run from the next step on, at least one; no token changes."""
        self._scheduler.limit_running(max_running)

    def generate(self, requests: Iterable[Request]) -> list[Completion]:
        """Complete all requests; completions in the order of the requests.

        Requests are taken from the iterable as there is room for them. Rows added before by
        ``add_request`` are computed along and stay for ``step`` to return.
        """
        answers: dict[RowId, Completion | None] = {}
        source, is_exhausted = iter(requests), False
        while True:
            room = self.config.max_num_seqs + LOOK_AHEAD - self._scheduler.num_waiting
            taken = list(islice(source, max(0, room)))
            is_exhausted = is_exhausted or len(taken) < room
            for request in taken:
                if request.row_id in answers:
                    raise ValueError(f"row_id {request.row_id}: two requests of that row")
                answers[request.row_id] = None
                self.add_request(request)
            if (
                is_exhausted
                and answers.keys().isdisjoint(self._live)
                and answers.keys().isdisjoint(self._done)
            ):
                return [answer for answer in answers.values() if answer is not None]
            self._advance()
            for row_id in answers.keys() & self._done.keys():
                answers[row_id] = self._done.pop(row_id)

    def stream(self, request: Request) -> Iterator[str | Completion]:
        """Complete one request: pieces of its text as they become certain, then the Completion.

        Text that may begin a stop string comes when that is clear. Leaving the iterator early
        aborts the row.
        """
        self._add(request, joins=False)  # it takes the text piece by piece, from its own sequence
        row = self._live.get(request.row_id)
        try:
            while request.row_id not in self._done:
                self._advance()
                if row is not None and (text := row.first.take_text()):
                    yield text
            yield self._done.pop(request.row_id)
        finally:
            self.abort(request.row_id)

    def num_generated_tokens(self, row_id: RowId) -> int:
        """Tokens that a row in flight has generated so far, in its first completion.

        Raises:
            KeyError: no row of that id is in flight.
        """
        return self._live[row_id].first.num_generated_tokens

    def abort(self, row_id: RowId) -> None:
        """Forget a row, its blocks and its answer; a row that is not here is no error."""
        self._done.pop(row_id, None)
        row = self._live.pop(row_id, None)
        if row is None:
            return
        del row.waiting[row_id]
        if not row.waiting:
            for sequence in row.sequences:
                self._scheduler.remove(sequence)
            self._forget(row)

    def close(self) -> None:
        """End the engine's threads; it cannot step afterwards."""
        self._team.close()

    def check_invariants(self) -> None:
        """Every block is accounted for; for tests, costs the whole pool."""
        self._scheduler.check_invariants()
        rows = {id(row): row for row in self._live.values()}.values()
        held = self._scheduler.num_running + self._scheduler.num_waiting
        assert held == sum(len(row.sequences) for row in rows) == len(self._rows), "a row is lost"
        assert self._live.keys() == {row_id for row in rows for row_id in row.waiting}, (
            "a row is lost"
        )
        assert all(any(row is live for live in rows) for row in self._greedy.values()), "a ghost"
        assert self._live.keys().isdisjoint(self._done), "a row is answered and still here"

    def _advance(self) -> None:
        """Schedule, forward, sample, commit."""
        started = perf_counter()
        chunks = self._scheduler.schedule()
        if not chunks:
            assert not self._live, "rows are waiting and none can run"
            return
        sampling = [chunk.sequence for chunk in chunks if chunk.samples]
        logits = self._runner.run(chunks)
        with self.stages.stage("sampling"):
            samples = self._sampler.sample(logits, sampling)
        self._commit(chunks, sampling, samples)
        self.stats.steps += 1
        self.stats.step_s += perf_counter() - started

    def _commit(
        self,
        chunks: Rows[ScheduledChunk],
        sampling: Rows[Sequence],
        samples: Rows[Sample | None],
    ) -> None:
        for chunk in chunks:
            self.stats.count_chunk(chunk)
        self._scheduler.computed(chunks)
        now = perf_counter()
        for sequence, sample in zip(sampling, samples, strict=True):
            self._accept(sequence, sample, now)

    def _accept(self, sequence: Sequence, sample: Sample | None, now: float) -> None:
        """Give a sequence its next token, and finish it if that was the last one."""
        if sample is None:
            self._finish(sequence, sequence.failure(NON_FINITE, now), now)
            return
        before = sequence.num_generated_tokens
        if before == 0 and sequence.forked_from is None:
            self._fork(sequence)
        ending = sequence.append(sample.token_id, sample.logprobs)
        self.stats.decode_tokens += sequence.num_generated_tokens - before
        if before == 0 and sequence.num_generated_tokens == 1:
            sequence.first_token_s = now
        if ending is not None:
            self._finish(sequence, sequence.completion(ending, now), now)
        elif not self._scheduler.fits(sequence.num_tokens):
            error = pool_too_small(sequence.num_tokens, self._pool)
            self._finish(sequence, sequence.failure(error, now), now)

    def _add(self, request: Request, *, joins: bool) -> None:
        """Take a request; `joins`: it may get the answer of an equal row."""
        if request.row_id in self._live or request.row_id in self._done:
            raise ValueError(f"row_id {request.row_id}: a request of that row is still in flight")
        self.stats.requests += 1
        now = perf_counter()
        try:
            sequence = self._admission.sequence(request, now)
        except RowError as error:
            self._give(_refusal(request.row_id, error))
            return
        try:
            self._admission.check(sequence)
        except RowError as error:
            self._give(sequence.failure(error, now))
            return
        self._enqueue(sequence, joins)

    def _enqueue(self, sequence: Sequence, joins: bool) -> None:
        """Let a sequence wait for its turn, or join an equal row, or answer what needs no step."""
        twin = self._greedy.get(sequence.identity) if joins else None
        if twin is not None:
            self.stats.deduplicated += 1
            twin.waiting[sequence.row_id] = sequence.arrival_s
            self._live[sequence.row_id] = twin
            return
        row = Row(sequence)
        self._live[sequence.row_id] = self._rows[sequence] = row
        if joins and sequence.params.temperature == 0:
            self._greedy[sequence.identity] = row
        self._scheduler.add(sequence)
        if sequence.num_tokens == sequence.max_tokens:  # max_tokens: 0
            now = perf_counter()
            self._fork(sequence)
            for empty in list(row.sequences):
                self._finish(empty, empty.completion(Ending(FinishReason.LENGTH), now), now)

    def _fork(self, sequence: Sequence) -> None:
        """Queue the sequences of a row's further completions, which share its prompt."""
        row = self._rows[sequence]
        forks = [self._admission.fork(sequence, i) for i in range(1, sequence.params.n)]
        row.add(forks)
        self._rows.update(dict.fromkeys(forks, row))
        self._scheduler.add_forks(forks)

    def _finish(self, sequence: Sequence, completion: Completion, now: float) -> None:
        """Take out a sequence that ended, and answer its row if it was the last one."""
        self._scheduler.remove(sequence)
        row = self._rows.pop(sequence)
        if row.end(sequence, completion):
            for answer in row.answers(now):
                del self._live[answer.row_id]
                self._give(answer)
            self._forget(row)

    def _forget(self, row: Row) -> None:
        """Drop what still leads to a row that is answered or that nobody waits for."""
        for sequence in row.sequences:
            del self._rows[sequence]
        if self._greedy.get(row.first.identity) is row:
            del self._greedy[row.first.identity]

    def _give(self, completion: Completion) -> None:
        self.stats.count_completion(completion)
        self._done[completion.row_id] = completion


def _refusal(row_id: RowId, error: RowError) -> Completion:
    return Completion(
        row_id=row_id,
        text=None,
        finish_reason=FinishReason.ERROR,
        error=str(error),
        error_kind=error.kind,
    )


def _max_model_len(config: EngineConfig, model: Model) -> int:
    context = model.config.context_length
    if config.max_model_len is not None and config.max_model_len > context:
        raise EngineConfigError(
            f"max_model_len: {config.max_model_len} is more than the model's context of {context} "
            f"tokens; lower max_model_len to at most {context}"
        )
    return config.max_model_len or context
