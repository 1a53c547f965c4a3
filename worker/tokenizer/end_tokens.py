"""Which tokens are special by their names.

Besides the ids that the file names (eos, eot, eom), llama.cpp ends a generation at tokens it
knows by name, because many files name one of several; the names are those of its
``llama-vocab.cpp``. Two differences:

* ``</s>`` counts only where ``<s>`` is a control token too. In Gemma 3 the pair is HTML's
  strike-through, two ordinary user-defined tokens.
* gpt-oss' ``<|channel|>``, ``<|message|>``, ``<|start|>`` and ``<|constrain|>`` keep the type
  the file gives them; llama.cpp makes them visible text.
"""

from collections.abc import Mapping

_END_OF_TURN_OR_TEXT = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "[e~[",
        "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek's own characters
    }
)
_END_OF_INFILL = frozenset(
    {
        "<|fim_pad|>",
        "<fim-pad>",
        "<fim_pad>",
        "<PAD>",
        "[PAD]",
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<REPO>",
        "<reponame>",
        "<|file_sep|>",
    }
)
_INFILL = frozenset(
    {
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "\u2581<PRE>"),
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "\u2581<SUF>"),
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "\u2581<MID>"),
        *("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
        *("<|prefix|>", "<|suffix|>", "<|middle|>"),
        "<\uff5cfim\u2581begin\uff5c>",
        "<\uff5cfim\u2581hole\uff5c>",
        "<\uff5cfim\u2581end\uff5c>",
    }
)
_TOOL_CALL_ENDS = (frozenset({"<|return|>", "<|call|>"}), frozenset({"<|calls|>", "<|flush|>"}))


def end_ids_by_name(ids: Mapping[str, int], control_ids: frozenset[int]) -> frozenset[int]:
    """Find the tokens that end a completion by their names.

    Args:
        ids: token text to id.
        control_ids: tokens of control type.
    """
    names = {name for name in _END_OF_TURN_OR_TEXT | _END_OF_INFILL if name in ids}
    if ids.get("<s>") in control_ids and "</s>" in ids and "<|tool_response>" not in ids:
        names.add("</s>")
    if any(calls <= names for calls in _TOOL_CALL_ENDS):
        # Harmony: <|end|> closes a message, the answer goes on until <|return|> or <|call|>.
        names.discard("<|end|>")
    return frozenset(ids[name] for name in names)


def infill_ids_by_name(ids: Mapping[str, int]) -> frozenset[int]:
    """Find the tokens around a gap to fill by their names.

    Args:
        ids: token text to id.
    """
    return frozenset(ids[name] for name in _INFILL if name in ids)
