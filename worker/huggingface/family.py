"""One kind of checkpoint: how its settings and tensors are called in GGUF."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from worker.errors import CheckpointError, UnsupportedModelError
from worker.gguf.wording import shown

from .config import Config, Setting
from .mxfp4 import Mxfp4
from .readings import Reading, Stored

Make = Callable[[Stored, Config], Reading]
"""Makes the tensor that GGUF has from the stored one."""

MakeMxfp4 = Callable[[Mxfp4], Reading]
"""Makes the tensor that GGUF has from one in MXFP4."""

Targets = str | tuple[str, Make] | Mapping[str, Make]
"""What a stored tensor becomes: a GGUF name, with how it is read, or several of them."""

_LAYER, _EXPERT = "{layer}", "{expert}"


def no_tensors(config: Config) -> Mapping[str, Reading]:
    """The extra tensors of a family without any."""
    return {}


@dataclass(frozen=True)
class Family:
    """The tables of one architecture.

    Attributes:
        architecture: as GGUF calls it.
        classes: what ``architectures`` in config.json may say.
        keys: GGUF key without its prefix, and how its value is found.
        tensors: stored name, with ``{layer}`` and ``{expert}`` for numbers, and what it becomes.
            Stored tensors of experts become one stack.
        key_groups: keys that are found together.
        extra: tensors that are computed.
        fixed: fields that must have one of these values, since others mean another computation;
            a missing field counts as the first.
        ties_embeddings: whether the output head is the embedding when config.json does not say.
        ignored: endings of stored names that hold nothing a model needs.
        mxfp4: stored name of weights in MXFP4, without its ending, and what it becomes.
        defaults: of fields that config.json may leave out.
        prefixes: beginnings of stored names, and what to read instead.
        other_parts: beginnings of stored names that belong to other than the text model.
    """

    architecture: str
    classes: tuple[str, ...]
    keys: Mapping[str, Setting]
    tensors: Mapping[str, Targets]
    key_groups: tuple[Callable[[Config], Mapping[str, object]], ...] = ()
    extra: Callable[[Config], Mapping[str, Reading]] = no_tensors
    fixed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    ties_embeddings: bool = False
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)
    mxfp4: Mapping[str, Mapping[str, MakeMxfp4]] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    other_parts: tuple[str, ...] = ()

    def metadata(self, config: Config) -> dict[str, object]:
        """The metadata that a GGUF file of this checkpoint would have.

        Raises:
            CheckpointError: a field is missing or cannot be right.
            UnsupportedModelError: a field asks for another computation.
        """
        self._check_fixed(config)
        own = {key: setting(config) for key, setting in self.keys.items()}
        for group in self.key_groups:
            own |= group(config)
        named = {f"{self.architecture}.{key}": value for key, value in own.items()}
        return {
            "general.architecture": self.architecture,
            **{key: value for key, value in named.items() if value is not None},
        }

    def targets(self, name: str) -> "Match[Make] | None":
        """What a stored tensor becomes; None when it has no place here."""
        return _match(self._patterns, name)

    def mxfp4_targets(self, name: str) -> "Match[MakeMxfp4] | None":
        """The same for a tensor in MXFP4."""
        return _match([(_pattern(name), target) for name, target in self.mxfp4.items()], name)

    def own_name(self, name: str) -> str | None:
        """A stored name as the tables have it; None when it holds nothing the model needs."""
        if name.endswith(self.ignored) or name.startswith(self.other_parts):
            return None
        for prefix, own in self.prefixes.items():
            if name.startswith(prefix):
                return own + name.removeprefix(prefix)
        return name

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], Mapping[str, Make]]]:
        return [(_pattern(name), _mapping(target)) for name, target in self.tensors.items()]

    def _check_fixed(self, config: Config) -> None:
        for name, allowed in self.fixed.items():
            value = config.get(name, allowed[0])
            if value not in allowed or type(value) not in map(type, allowed):
                raise UnsupportedModelError(
                    f"{config.path}: field {name} is {shown(value)}: tokenmill computes "
                    f"{self.architecture} with {' or '.join(map(str, allowed))} only; take a model "
                    "of that kind"
                )


M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Match(Generic[M]):
    """Where a stored tensor belongs.

    Attributes:
        targets: GGUF names, and how each is read.
        expert: number of the expert that it is of; None for others.
    """

    targets: Mapping[str, M]
    expert: int | None


def as_stored(stored: Stored, config: Config) -> Reading:
    """The tensor as it is in the file."""
    return stored


def _mapping(target: Targets) -> Mapping[str, Make]:
    if isinstance(target, str):
        return {target: as_stored}
    return dict([target]) if isinstance(target, tuple) else target


def _pattern(name: str) -> re.Pattern[str]:
    escaped = re.escape(name)
    for place in (_LAYER, _EXPERT):
        group = f"(?P<{place[1:-1]}>0|[1-9][0-9]{{0,5}})"
        escaped = escaped.replace(re.escape(place), group)
    return re.compile(escaped)


def _match(
    patterns: Iterable[tuple[re.Pattern[str], Mapping[str, M]]], name: str
) -> Match[M] | None:
    for pattern, target in patterns:
        found = pattern.fullmatch(name)
        if found is not None:
            return Match(_with_numbers(target, found), _number(found, "expert"))
    return None


def _with_numbers(target: Mapping[str, M], found: re.Match[str]) -> Mapping[str, M]:
    layer = found.groupdict().get("layer") or ""
    return {name.replace(_LAYER, layer): make for name, make in target.items()}


def _number(found: re.Match[str], group: str) -> int | None:
    text = found.groupdict().get(group)
    return None if text is None else int(text)


def check_experts(config: Config, name: str, numbers: list[int]) -> None:
    """Check that a stack has its experts from 0 on without a gap.

    Raises:
        CheckpointError: one is missing.
    """
    missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
    if missing:
        raise CheckpointError(
            f"{config.path.parent}: expert {missing[0]} of tensor {shown(name)} is missing; copy "
            "or download the folder again"
        )
