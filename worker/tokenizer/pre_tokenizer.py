"""The pre-tokenizers of byte-level BPE vocabularies, by the names of ``tokenizer.ggml.pre``.

A pre-tokenizer cuts text into words before merges are applied: each pattern in turn isolates
its matches within the pieces left by the one before. Names, patterns, ``ignore_merges`` and BOS
defaults are those of llama.cpp's ``llama-vocab.cpp``; where that quotes the pattern of the
original tokenizer.json and adapts it to its own engine, the original stands here, written so
that long runs take linear time. What may stand at the start of a run of digits is found by a
look-behind, and what follows it by one possessive look-ahead.
"""

from dataclasses import dataclass

import tokenizers
from tokenizers import pre_tokenizers


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How one family of vocabularies cuts text into words.

    Attributes:
        patterns: Oniguruma patterns, applied one after the other.
        ignore_merges: a word that is a token is that token, whatever the merges say.
        add_bos: whether BOS is added when the file does not say.
        byte_level: tokens are spelled in GPT-2's alphabet of bytes. Otherwise they are spelled as
            they are, with U+2581 for a blank and ``<0x0A>`` for bytes.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    byte_level: bool = True

    def splits(self) -> list[pre_tokenizers.Split]:
        """Give the patterns as the tokenizers library applies them."""
        return [
            pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
            for pattern in self.patterns
        ]


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_TAIL}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
)
_CASED_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}|{_CASED_SYMBOLS}|{_TAIL}"
)
_CASED_WORD = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
)
_GPT4O = rf"{_CASED_WORD}|\p{{N}}{{1,3}}|{_CASED_SYMBOLS}|{_TAIL}"
_JAIS2 = (
    rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|\s*[\r\n]+"
    + "".join(rf"|\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
    + r"|\s{1}"
)
_KANA = r"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"
_CJK = r"[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"
_PUNCTUATED = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _TAIL
)
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+"

_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_LLAMA_BPE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_DBRX = PreTokenizer((_LLAMA3,))
_GPT_2 = PreTokenizer((_GPT2,))
_DIGIT_BY_DIGIT = PreTokenizer((r"\p{N}", _GPT2))
_QWEN_2 = PreTokenizer((_QWEN2,))
_GPT_4O = PreTokenizer((_GPT4O,))
_DEEPSEEK_3 = PreTokenizer((r"\p{N}{1,3}", _KANA, _PUNCTUATED))
_DEEPSEEK_LLM = PreTokenizer(
    (
        r"[\r\n]",
        # Cased letters. The original lists them one by one and leaves out Armenian's and
        # Georgian's small ones, mathematical ones and those that are new in Unicode.
        r"\s?[\p{Lu}\p{Ll}\p{Lt}&&[^\u0560-\u0588\u10C7-\u10FF\u1C80-\u1C8A\u2D00-\u2D2D"
        r"\uA790-\uAB68\x{10570}-\x{105BC}\x{10D50}-\x{10D85}\x{16E40}-\x{1DF2A}]]+",
        r"\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+",
        # Only where a run of blanks starts: tried at each blank, it would take quadratic time.
        r"(?<!\s)\s++$",
        _CJK,
        r"\p{N}+",
    )
)
_BAILING = PreTokenizer(
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)
_CHAMELEON = PreTokenizer(
    (
        r"<sentinel:[0-9]+>",
        r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        r"([\t\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2,
    ),
    add_bos=True,
)
_SEED_CODER = PreTokenizer(
    (rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_TAIL}",)
)
_YOUTU = PreTokenizer(
    (
        r"[\uAC00-\uD7A3\u3131-\u318E]+"
        r"|[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C\u3001-\u303F"
        r"\uFE30-\uFE4F]+|[\u3105-\u312F]+|[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
        rf"{_CASED_WORD}|\p{{N}}|{_CASED_SYMBOLS}|{_TAIL}",
    ),
    ignore_merges=True,
)
_MINICPM5 = PreTokenizer(
    (r"\p{N}{1,3}", rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}+|{_SYMBOLS}|{_TAIL}"), ignore_merges=True
)
_SPARK = PreTokenizer(
    (
        r"\p{N}{1,3}",
        _KANA,
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
        r"\p{N}",
    )
)
_EXAONE_MOE = PreTokenizer(
    (
        # The original is (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+, which takes exponential time where it
        # fails; this one matches the same texts.
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}\p{{M}}*+(?: ?\p{{L}}\p{{M}}*+)*+"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)
_UPPER_BUT_HAN = rf"[{_UPPER[1:-1]}&&[^\p{{Han}}]]"
_LOWER_BUT_HAN = rf"[{_LOWER[1:-1]}&&[^\p{{Han}}]]"
_KIMI = PreTokenizer(
    (
        rf"\p{{Han}}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER_BUT_HAN}*{_LOWER_BUT_HAN}+{_CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER_BUT_HAN}+{_LOWER_BUT_HAN}*{_CONTRACTIONS}?"
        rf"|\p{{N}}{{1,3}}|{_SYMBOLS}|{_TAIL}",
    )
)
# Digits in threes from the right, where the run ends a word: \d{1,3}(?=(?:\d{3})*\b)
_TINY_AYA = PreTokenizer((r"(?<!\d)\d{1,3}(?=(?:\d{3})*+\b)|(?<=\d)\G\d{3}", rf"{_GPT4O}"))
# Runs of digits are cut where a multiple of three is left: (?=(\d{3})+(?!\d))
_SUPERBPE = PreTokenizer(
    (
        r"\p{N}+",
        r"\A(?:\D*\d{1,2}|\D+)(?=(?:\d{3})++(?!\d))|\d{3}(?=\d)|\d{3}\D*\z",
    )
)
# Digits in threes from the right; what stands before a run stays with its first group.
_RUN_START = r"(?:\A|(?<=\p{N})(?=\P{N}))\P{N}*+"
_AFMOE = PreTokenizer(
    (
        rf"{_RUN_START}\p{{N}}{{1,2}}(?=(?:\p{{N}}{{3}})*+(?!\p{{N}}))"
        rf"|{_RUN_START}\p{{N}}{{3}}|\p{{N}}{{3}}",
        r"[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F"
        r"\u2F00-\u2FDF\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F"
        r"\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+",
        _PUNCTUATED,
    )
)
_LINES = r"[^\n]+|\n+"
_GEMMA_4 = PreTokenizer((_LINES,), add_bos=True, byte_level=False)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _DEFAULT,
    **dict.fromkeys(
        (
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ),
        _LLAMA_BPE,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _DBRX),
    **dict.fromkeys(("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True)),
    **dict.fromkeys(
        (
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ),
        _GPT_2,
    ),
    **dict.fromkeys(
        (
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ),
        _DIGIT_BY_DIGIT,
    ),
    **dict.fromkeys(
        (
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ),
        _QWEN_2,
    ),
    "qwen35": PreTokenizer((_QWEN35,)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"), _GPT_4O),
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "step35", "hunyuan-dense", "joyai-llm", "hy_v4"), _DEEPSEEK_3),
    "youtu": _YOUTU,
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "jais-2": PreTokenizer((_JAIS2,)),
    "chameleon": _CHAMELEON,
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "seed-coder": _SEED_CODER,
    "minicpm5": _MINICPM5,
    "spark2_5": _SPARK,
    "exaone-moe": _EXAONE_MOE,
    "kimi-k2": _KIMI,
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _TINY_AYA),
    "superbpe": _SUPERBPE,
    "afmoe": _AFMOE,
    "granite-embed-multi-97m": PreTokenizer((_GPT4O,), ignore_merges=True),
    "ufakzeka": PreTokenizer((rf"{_WORD}|\p{{N}}|{_SYMBOLS}|{_TAIL}",)),
    "laguna": PreTokenizer((_LINES, _QWEN2)),
    **dict.fromkeys(("gemma4", "granite-embed-multi-311m"), _GEMMA_4),
    "sarvam-moe": PreTokenizer((_LINES,), byte_level=False),
}
"""The known names; a file without the key has ``default``, as in llama.cpp."""
