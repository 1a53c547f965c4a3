"""An engine without a model, for tests: it answers by a prompt's last character."""

from dataclasses import asdict, dataclass

from worker.engine.completion import Completion, FinishReason, TokenLogprobs
from worker.engine.request import Request

ANSWERS = {"?": "yes", "!": "No"} | dict(zip("0123456789", "PQRSTUVWXZ", strict=True))


@dataclass(kw_only=True)
class FakeSnapshot:
    """The counters that the cluster package reads."""

    steps: int = 0
    step_s: float = 0.0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    preempted_hits: int = 0
    prefix_cache_evictions: int = 0
    deduplicated: int = 0
    running: int = 0
    waiting: int = 0
    kv_blocks_used: int = 0
    kv_blocks_idle: int = 0
    kv_blocks_total: int = 8
    kv_blocks_peak: int = 0
    kv_bytes_total: int = 0
    kv_bytes_peak: int = 0
    dequant_hits: int = 0
    dequant_misses: int = 0
    dequant_evictions: int = 0
    dequant_bytes: int = 0
    dequant_bytes_peak: int = 0
    kernels_compiled: int = 0

    def as_dict(self):
        """Name to value."""
        return asdict(self)


class FakeStats:
    """Gives the same snapshot object, counted up by the engine."""

    def __init__(self):
        self.now = FakeSnapshot()

    def snapshot(self):
        """The counters now."""
        return self.now


class FakeEngine:
    """Answers one row a step, the newest first; raises when a prompt says so."""

    def __init__(self):
        self.stats = FakeStats()
        self.numerics = "fake"
        self.limits = []
        self._waiting = []

    @property
    def has_work(self):
        """Whether rows wait."""
        return bool(self._waiting)

    def add_request(self, request: Request):
        """Take a row."""
        self._waiting.append(request)

    def limit_running(self, max_running):
        """Take note."""
        self.limits.append(max_running)

    def step(self):
        """Answer the newest row."""
        request = self._waiting.pop()
        if request.prompt == "explode":
            raise RuntimeError("the engine broke")
        return [answer(request)]


def answer(request: Request) -> Completion:
    """What the chain model says to a prompt; each further completion ends with one dot more."""
    text = ANSWERS.get((request.prompt or "")[-1:], "")
    return completion_of(request, *(text + "." * index for index in range(request.sampling.n)))


def completion_of(request: Request, text: str, *others: str) -> Completion:
    """A completion of this text, and a row's further ones; each byte is a token."""
    return Completion(
        row_id=request.row_id,
        text=text,
        finish_reason=FinishReason.STOP,
        prompt_token_ids=tuple((request.prompt or "").encode()),
        token_ids=tuple(text.encode()),
        logprobs=None
        if request.sampling.logprobs is None
        else tuple(map(logprobs_of, text.encode())),
        ttft_s=0.25,
        latency_s=0.5,
        others=tuple(completion_of(request, other) for other in others),
    )


def logprobs_of(token_id: int) -> TokenLogprobs:
    """Log-probabilities that follow from the token, with one that is more likely."""
    return TokenLogprobs(token_id, -token_id / 7, ((token_id + 1, -token_id / 9),))
