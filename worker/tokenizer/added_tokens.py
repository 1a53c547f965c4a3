"""What is added before and after a prompt."""

from dataclasses import dataclass

from gguf.constants import Keys

from worker.errors import GGUFError
from worker.gguf.metadata import Metadata

from .encoding_model import EncodingModel
from .vocabulary import SpecialIds


@dataclass(frozen=True, slots=True)
class AddedTokens:
    """The tokens around a prompt.

    Attributes:
        prefix: BOS, or nothing.
        suffix: EOS, or nothing.
    """

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

    @classmethod
    def from_metadata(
        cls, metadata: Metadata, special: SpecialIds, model: EncodingModel
    ) -> "AddedTokens":
        """Read what a file asks for.

        Raises:
            GGUFError: BOS or EOS is to be added, but the file names none.
        """
        names = Keys.Tokenizer
        bos = True if model.needs_bos else metadata.boolean(names.ADD_BOS, None)
        eos = metadata.boolean(names.ADD_EOS, None)
        return cls(
            _added(metadata, names.ADD_BOS, bos, model.add_bos, names.BOS_ID, special.bos),
            _added(metadata, names.ADD_EOS, eos, model.add_eos, names.EOS_ID, special.eos),
        )

    def around(self, ids: list[int], *, doubled: bool) -> list[int]:
        """Put the tokens around a prompt.

        Args:
            ids: of the prompt.
            doubled: whether a token that the prompt begins or ends with is added all the same.
        """
        before = () if not doubled and ids[:1] == [*self.prefix] else self.prefix
        after = () if not doubled and ids[-1:] == [*self.suffix] else self.suffix
        return [*before, *ids, *after]


def _added(
    metadata: Metadata,
    key: str,
    asked: bool | None,
    default: bool,
    id_key: str,
    token_id: int | None,
) -> tuple[int, ...]:
    if asked and token_id is None:
        raise GGUFError(
            f"{metadata.path}: key {key} asks for a token on every prompt, but {id_key} is "
            "missing; convert the model again"
        )
    wanted = default if asked is None else asked
    return (token_id,) if wanted and token_id is not None else ()
