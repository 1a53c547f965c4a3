"""A row in the engine: its completions on their way, and who waits for them."""

from dataclasses import replace

from .completion import Completion
from .request import RowId
from .sequence import Sequence


class Row:
    """One computation, of one row or of several equal ones.

    Attributes:
        first: the sequence of completion 0.
        sequences: those that have not ended, one a completion.
        waiting: row ids that get the answer, with their arrival on the engine's clock.
    """

    def __init__(self, first: Sequence) -> None:
        self.first = first
        self.sequences = [first]
        self.waiting: dict[RowId, float] = {first.row_id: first.arrival_s}
        self._ended: dict[int, Completion] = {}

    def add(self, forks: list[Sequence]) -> None:
        """Take the sequences of further completions."""
        self.sequences += forks

    def end(self, sequence: Sequence, completion: Completion) -> bool:
        """Take a sequence's completion; whether the row is answered.

        A failed one does not end the others: which fails first may depend on what runs beside them.
        """
        self.sequences.remove(sequence)
        self._ended[sequence.completion_index] = completion
        return not self.sequences

    def answers(self, now_s: float) -> list[Completion]:
        """The answer to each row id that waits."""
        completions = [self._ended[index] for index in sorted(self._ended)]
        failed = [completion for completion in completions if completion.error is not None]
        first, *others = completions
        answer = failed[0] if failed else replace(first, others=tuple(others))
        return [self._addressed(answer, *waiting, now_s) for waiting in self.waiting.items()]

    def _addressed(
        self, answer: Completion, row_id: RowId, arrival_s: float, now_s: float
    ) -> Completion:
        """The answer with a row's own id and times."""
        late_s = arrival_s - self.first.arrival_s
        return replace(
            answer,
            row_id=row_id,
            others=tuple(replace(other, row_id=row_id) for other in answer.others),
            ttft_s=None if answer.ttft_s is None else max(0.0, answer.ttft_s - late_s),
            latency_s=now_s - arrival_s,
        )
