r"""The pre-tokenizers that a GGUF names in `tokenizer.ggml.pre`, as splits of a tokenizer.json. A table, no algorithm.

The names and which of them share a pattern are those of llama.cpp's src/llama-vocab.cpp; where its comments give the
pattern of the model's own tokenizer.json, that one stands here (llama.cpp spells `(?i:'s)` out for its own engine).
"""

from __future__ import annotations

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_QWEN35 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = _CASED % ("", "") + r"|\p{N}" + _REST
_GPT4O = _CASED % ((_CONTRACTIONS + "?",) * 2) + r"|\p{N}{1,3}" + _REST
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
).replace('\\"', '"')
_CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄ"
    "ῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_CJK = "[一-龥ࠀ-一가-퟿]+"
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"


@dataclass(frozen=True)
class Pre:
    """Patterns applied one after the other (matches and gaps are pieces), and two flags of the encoding."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


def _families() -> dict[str, Pre]:
    families = {
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais "
        "trillion granite-docling": Pre((_GPT2,)),
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": Pre((r"\p{N}", _GPT2)),
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": Pre(
            (_LLAMA3,), ignore_merges=True, add_bos=True
        ),
        "dbrx smaug-bpe glm4 chatglm-bpe": Pre((_LLAMA3,)),
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2 solar-open": Pre((_QWEN2,)),
        "qwen35": Pre((_QWEN35,)),
        "deepseek-llm": Pre(
            ("[\r\n]", rf"\s?[{_CASED_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _CJK, r"\p{N}+")
        ),
        "deepseek-coder": Pre(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
        "deepseek-v3 hunyuan-dense joyai-llm": Pre((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
        "falcon": Pre((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
        "poro-chat bloom gpt3-finnish": Pre((_BLOOM,)),
        "viking": Pre((_BLOOM, r"\p{N}")),
        "tekken": Pre((_TEKKEN,), ignore_merges=True, add_bos=True),
        "gpt-4o llama4 kanana2 minimax-m2": Pre((_GPT4O,)),
        "seed-coder": Pre((_QWEN2.replace(r"\p{N}]+[\r\n]*", r"\p{N}\r\n]+"),)),
        "minicpm5": Pre((r"\p{N}{1,3}", _LLAMA3.replace("{1,3}", "+")), ignore_merges=True),
        "default": Pre((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    }
    return {name: pre for names, pre in families.items() for name in names.split()}


PRE = _families()
"""`tokenizer.ggml.pre` -> what it stands for."""
