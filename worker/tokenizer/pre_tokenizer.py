"""The pre-tokenizers of byte-level BPE vocabularies, by the names of ``tokenizer.ggml.pre``.

A pre-tokenizer cuts text into words before merges are applied: each pattern in turn isolates
its matches within the pieces left by the one before. Names, patterns, ``ignore_merges`` and BOS
defaults are those of llama.cpp's ``llama-vocab.cpp``; where that quotes the pattern of the
original tokenizer.json and adapts it to its own engine, the original stands here. Left out are
names whose patterns need code of their own (kimi-k2, afmoe, gemma4, sarvam-moe, whitespace) or
take quadratic time on long runs (tiny_aya, superbpe).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How one family of vocabularies cuts text into words.

    Attributes:
        patterns: Oniguruma patterns, applied one after the other.
        ignore_merges: a word that is a token is that token, whatever the merges say.
        add_bos: whether BOS is added when the file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


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
_DEEPSEEK_3 = PreTokenizer(
    (r"\p{N}{1,3}", r"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", _PUNCTUATED)
)
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
_MINICPM5 = PreTokenizer((r"\p{N}{1,3}", rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}+|{_SYMBOLS}|{_TAIL}"))

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
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _DBRX),
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
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
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
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _GPT_4O),
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "step35", "hunyuan-dense", "joyai-llm"), _DEEPSEEK_3),
    "youtu": _YOUTU,
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "jais-2": PreTokenizer((_JAIS2,)),
    "chameleon": _CHAMELEON,
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "seed-coder": _SEED_CODER,
    "minicpm5": _MINICPM5,
}
"""The known names; a file without the key has ``default``, as in llama.cpp."""
