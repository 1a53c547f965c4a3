"""Is this job the run that lies in the output folder? Every difference by its name."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .errors import JobConfigError
from .manifest import Manifest

NUMERICS: Final = "numerics"
"""The one key of a fingerprint that is known only once a worker has loaded the model."""

_SHOWN_CHARACTERS: Final = 80
_SHOWN_DIFFERENCES: Final = 5
_MISSING: Final = object()


def refuse_other_run(
    manifest: Manifest,
    name: str,
    fingerprint: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse to go on with a run that a job would not have begun.

    Args:
        manifest: of the run in the folder.
        name: the folder, for the message.
        fingerprint: the job's; its numerics identity is not looked at.
        inputs: the job's input files, as ``describe_inputs`` gives them.

    Raises:
        JobConfigError: they differ; the message lists keys, both values and what to do.
    """
    differences = [
        *_differences(manifest.fingerprint, fingerprint, leave_out={NUMERICS}),
        *_input_differences(manifest.inputs, inputs),
    ]
    if not differences:
        return
    shown = "; ".join(differences[:_SHOWN_DIFFERENCES])
    more = len(differences) - _SHOWN_DIFFERENCES
    raise JobConfigError(
        f"{name}: the run in this output folder is another one: {shown}"
        f"{f'; and {more} more' if more > 0 else ''}; go back to the old settings and files, or "
        "use a new output folder"
    )


def _differences(
    there: Mapping[str, Any], now: Mapping[str, Any], leave_out: set[str]
) -> list[str]:
    """Name the keys whose values differ, nested ones by their path."""
    found = []
    for key in sorted({*there, *now} - leave_out):
        old, new = there.get(key, _MISSING), now.get(key, _MISSING)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += [f"{key}.{line}" for line in _differences(old, new, set())]
        elif old != new:
            found.append(f"{key} was {_shown(old)}, is {_shown(new)}")
    return found


def _input_differences(
    there: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[str]:
    old, new = ({file["path"]: file for file in files} for files in (there, now))
    return [
        *(f"input file {path} is gone" for path in old if path not in new),
        *(f"input file {path} is new" for path in new if path not in old),
        *(
            f"input file {path}: {line}"
            for path in new
            if path in old
            for line in _differences(old[path], new[path], set())
        ),
    ]


def _shown(value: object) -> str:
    text = "nothing" if value is _MISSING else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
