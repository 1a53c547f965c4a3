"""How far two ways to compute one model are from each other, over the tokens of a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .perplexity import log_sums
from .token_logits import TokenLogits


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """A model compared with a reference, after every token of a text.

    Attributes:
        num_tokens: tokens compared.
        mean_kl: mean over tokens of KL(reference || model), in nats: 0 for equal distributions.
        max_kl: the largest of them.
        same_argmax: tokens after which both find the same token most likely.
        max_difference: largest difference of two logits.
        reference_nll: the reference's mean of -ln p(next token), over all tokens but the last, in
            nats.
        nll: the model's.
    """

    num_tokens: int
    mean_kl: float
    max_kl: float
    same_argmax: int
    max_difference: float
    reference_nll: float
    nll: float

    @property
    def nll_difference(self) -> float:
        """Share by which the model's mean differs from the reference's, not negative."""
        return abs(self.nll - self.reference_nll) / self.reference_nll


def compare(reference: TokenLogits, model: TokenLogits, token_ids: Sequence[int]) -> Fidelity:
    """Run a text through both, side by side, a step at a time.

    Args:
        reference: logits of the reference.
        model: of the model that is judged, of the same vocabulary and `max_tokens`.
        token_ids: the text, at least two tokens and at most `max_tokens`.

    Raises:
        ModelError: a logit is not a finite number.
    """
    assert len(token_ids) >= 2, "nothing to predict"
    steps = zip(reference.of(token_ids), model.of(token_ids), strict=True)
    differences = [
        difference
        for (at, expected), (_, found) in steps
        for difference in _differences(expected, found, token_ids[at + 1 :], at + 1)
    ]
    losses = [each.losses for each in differences if each.losses is not None]
    reference_nll, nll = np.mean(losses, axis=0).tolist()
    return Fidelity(
        num_tokens=len(differences),
        mean_kl=float(np.mean([each.kl for each in differences])),
        max_kl=max(each.kl for each in differences),
        same_argmax=sum(each.same_argmax for each in differences),
        max_difference=max(each.largest for each in differences),
        reference_nll=reference_nll,
        nll=nll,
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    """Two predictions after one token; `losses`: -ln p of the next by both, None at the end."""

    kl: float
    same_argmax: bool
    largest: float
    losses: tuple[float, float] | None


def _differences(
    expected: NDArray[np.float32],
    found: NDArray[np.float32],
    following: Sequence[int],
    place: int,
) -> Iterator[_Difference]:
    """Compare logits [n, vocab_size] row by row.

    Args:
        expected: of the reference.
        found: of the model.
        following: the tokens that the rows predict; one fewer than rows at the text's end.
        place: number of the first of them.
    """
    # Megabytes that are allocated anew for each row would cost more than the arithmetic.
    p, gap = np.empty(expected.shape[1]), np.empty(expected.shape[1])
    sums = zip(log_sums(expected, place), log_sums(found, place), strict=True)
    for i, (expected_sum, found_sum) in enumerate(sums):
        np.subtract(expected[i], np.float64(expected_sum), out=p)
        np.exp(p, out=p)
        np.subtract(expected[i], found[i], out=gap, dtype=np.float64)
        yield _Difference(
            # ln p - ln q of a token is the gap of its logits less that of the sums.
            kl=float(p @ gap) - (expected_sum - found_sum),
            same_argmax=bool(expected[i].argmax() == found[i].argmax()),
            largest=max(float(gap.max()), -float(gap.min())),
            losses=(
                (
                    expected_sum - float(expected[i, following[i]]),
                    found_sum - float(found[i, following[i]]),
                )
                if i < len(following)
                else None
            ),
        )
