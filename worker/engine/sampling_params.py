"""Sampling parameters of one row."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one completion is sampled.

    Names and meanings follow vLLM's ``SamplingParams``; ``docs/options.md`` lists them for users.

    Attributes:
        temperature: 0 is greedy (the lowest id wins an exact tie); above 0, logits are divided
            by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of most likely tokens whose probability reaches top_p, the
            token that crosses it included; 1.0 keeps all, 0.0 keeps the most likely one.
        min_p: drop tokens less likely than min_p times the most likely one; 0.0 keeps all.
        seed: the row's own seed; None draws from the job seed and the row id.
        max_tokens: most tokens to generate; None means up to the end of the context.
        stop: strings that end the completion; the text ends before the earliest match.
        stop_token_ids: token ids that end the completion, besides the model's own.
        ignore_eos: go on after the model's end-of-text tokens.
        logprobs: report the sampled token's log-probability and that of the K most likely
            tokens; None reports nothing, 0 the sampled token alone.
        presence_penalty: subtracted from the logit of each token generated already.
        frequency_penalty: the same, times the number of its occurrences in the generated text.
        repetition_penalty: divides positive, multiplies negative logits of tokens in the prompt
            or the generated text; 1.0 changes nothing.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 128
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
