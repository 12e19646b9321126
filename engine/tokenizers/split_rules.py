"""How text is cut before merging, by the names of `tokenizer.ggml.pre`.

A GGUF file has the vocabulary of a byte-level tokenizer, but of its text rules the name alone. The expressions are
those of the models' own tokenizer.json files, which llama.cpp (src/llama-vocab.cpp) lists by these names. Where that
file is known to differ from llama.cpp's reading (NFC, digits one by one, case), it counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokenizers import Regex, pre_tokenizers

Step = str | pre_tokenizers.PreTokenizer
"""An expression whose matches stand alone, or a pre-tokenizer of the library."""


@dataclass(frozen=True)
class SplitRule:
    """The text rules of a vocabulary. `steps` cut one after the other, each within the parts of those before."""

    steps: tuple[Step, ...]
    is_nfc: bool = False
    """Text is brought to Unicode's form C first."""
    takes_whole_words: bool = False
    """A part that is a token is taken before merges are tried."""
    adds_bos: bool = False
    """Prompts begin with BOS if the file does not say."""
    is_byte_level: bool = True
    """Tokens are spelled in GPT-2's alphabet of bytes; else in characters, with U+2581 for a space."""

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """Return the steps as one pre-tokenizer, which spells bytes if the rule does."""
        steps = [
            pre_tokenizers.Split(Regex(step), behavior="isolated") if isinstance(step, str) else step
            for step in self.steps
        ]
        if self.is_byte_level and GPT_2_WORDS not in self.steps:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)


def _any(*expressions: str) -> str:
    return "|".join(expressions)


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
SIGNS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _cased(upper: str, lower: str, end: str = "") -> str:
    """Words that change case at most once, from capitals to small letters, with contractions at their `end`."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{upper}*{lower}+{end}|{start}{upper}+{lower}*{end}"


def _threes(digit: str, end: str) -> str:
    """Cut runs of digits that stop at `end` in groups of three, counted from the right.

    The originals look ahead to the end of a run at each group, which takes hours for a megabyte of digits. Here the
    first group does, and the others follow where the last match stopped.
    """
    return rf"(?<!{digit}){digit}{{1,3}}(?=(?:{digit}{{3}})*+{end})|\G(?<={digit}){digit}{{3}}"


CASED = _cased(f"[{UPPER}]", f"[{LOWER}]")
CASED_CONTRACTED = _cased(f"[{UPPER}]", f"[{LOWER}]", f"{CONTRACTIONS}?")
CASED_NOT_HAN = _cased(rf"[{UPPER}&&[^\p{{Han}}]]", rf"[{LOWER}&&[^\p{{Han}}]]", f"{CONTRACTIONS}?")
CJK = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK_WORDS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
DEEPSEEK_SIGNS = r" ?[\p{P}\p{S}]+[\r\n]*"
# The capital and small letters of several scripts, as the models of DeepSeek 1 were given them.
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-"
    "\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
BLOOM_WORDS = " ?[^(\\s|[.,!?…。，、।۔،])]+"  # noqa: RUF001
ASIAN = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e00-\u0e7f"
    r"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
HALVED_SPACES = "|".join(rf"\s{{{count}}}(?!\S)" for count in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))

GPT_2_WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
SINGLE_DIGITS = pre_tokenizers.Digits(individual_digits=True)
SIGN_RUNS = pre_tokenizers.Punctuation(behavior="contiguous")
SINGLE_SIGNS = pre_tokenizers.Punctuation(behavior="isolated")

GPT_2 = SplitRule((GPT_2_WORDS,))
NEOX = replace(GPT_2, is_nfc=True)
STARCODER = replace(GPT_2, steps=(SINGLE_DIGITS, GPT_2_WORDS))
COHERE = replace(STARCODER, is_nfc=True)
CL100K = SplitRule((_any(CONTRACTIONS, WORD, r"\p{N}{1,3}", SIGNS, SPACES),))
LLAMA_3 = replace(CL100K, takes_whole_words=True, adds_bos=True)
SINGLE_DIGIT_WORDS = _any(CONTRACTIONS, WORD, r"\p{N}", SIGNS, SPACES)
QWEN = SplitRule((SINGLE_DIGIT_WORDS,))
QWEN_2 = replace(QWEN, is_nfc=True)
QWEN_35_WORDS = _any(
    CONTRACTIONS, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", SPACES
)
O200K = SplitRule((_any(CASED_CONTRACTED, r"\p{N}{1,3}", SIGNS_AND_SLASHES, SPACES),))
DEEPSEEK_3 = SplitRule((r"\p{N}{1,3}", CJK, _any(DEEPSEEK_WORDS, DEEPSEEK_SIGNS, SPACES)))
BLOOM = SplitRule((BLOOM_WORDS,))
BAILING = SplitRule(
    (
        _any(
            r"'(?i:[sdmt]|ll|ve|re)",
            r"[^\r\n\p{L}\p{N}]?+\p{L}+",
            r"\p{N}",
            r" ?[^\s\p{L}\p{N}]++[\r\n]*",
            r"\s*[\r\n]|\s+(?!\S)|\s+",
        ),
    )
)
COHERE_2 = replace(O200K, steps=(_threes(r"\d", r"\b"), *O200K.steps), is_nfc=True)
FALCON = replace(
    GPT_2, steps=(SIGN_RUNS, GPT_2_WORDS, pre_tokenizers.Digits(individual_digits=False), "[0-9][0-9][0-9]")
)
GEMMA_4 = SplitRule((), adds_bos=True, is_byte_level=False)

SPLIT_RULES: dict[str, tuple[str, SplitRule]] = {
    "default": ("files that name no rule; a guess", FALCON),
    "gpt-2": ("GPT-2, Mellum of some files", GPT_2),
    "phi-2": ("Phi-1, Phi-2", GPT_2),
    "roberta-bpe": ("RoBERTa", GPT_2),
    "jina-v1-en": ("Jina", GPT_2),
    "jina-v2-code": ("Jina", GPT_2),
    "jina-v2-es": ("Jina", GPT_2),
    "jina-v2-de": ("Jina", GPT_2),
    "jina-es": ("Jina", GPT_2),
    "jina-de": ("Jina", GPT_2),
    "jais": ("Jais", GPT_2),
    "gigachat": ("GigaChat", GPT_2),
    "a.x-4.0": ("A.X 4.0", GPT_2),
    "mellum": ("Mellum", GPT_2),
    "trillion": ("Trillion", GPT_2),
    "granite-docling": ("Granite Docling", GPT_2),
    "exaone4": ("EXAONE 4", GPT_2),
    "olmo": ("OLMo 1", NEOX),
    "mpt": ("MPT", NEOX),
    "modern-bert": ("ModernBERT", NEOX),
    "smollm": ("SmolLM 1 and 2", STARCODER),
    "starcoder": ("StarCoder 2", STARCODER),
    "refact": ("Granite 3, Refact", STARCODER),
    "codeshell": ("CodeShell", STARCODER),
    "exaone": ("EXAONE 3", STARCODER),
    "minerva-7b": ("Minerva", STARCODER),
    "mellum2": ("Mellum 2", STARCODER),
    "command-r": ("Command R", COHERE),
    "falcon": ("Falcon 1", FALCON),
    "llama-bpe": ("Llama 3", LLAMA_3),
    "llama3": ("Llama 3", LLAMA_3),
    "llama-v3": ("Llama 3", LLAMA_3),
    "falcon3": ("Falcon 3", LLAMA_3),
    "falcon-h1": ("Falcon H1", LLAMA_3),
    "pixtral": ("Pixtral", LLAMA_3),
    "midm-2.0": ("Mi:dm 2", LLAMA_3),
    "lfm2": ("LFM 2", LLAMA_3),
    "jina-v5-nano": ("Jina", LLAMA_3),
    "dbrx": ("OLMo 2 and 3, Granite 4, Phi-4, DBRX", CL100K),
    "smaug-bpe": ("SmolLM 3, Smaug", CL100K),
    "glm4": ("GLM-4", CL100K),
    "chatglm-bpe": ("GLM-4", CL100K),
    "minicpm5": (
        "MiniCPM 5",
        SplitRule((r"\p{N}{1,3}", _any(CONTRACTIONS, WORD, r"\p{N}+", SIGNS, SPACES)), takes_whole_words=True),
    ),
    "jais-2": (
        "Jais 2",
        SplitRule((_any(CONTRACTIONS, WORD, r"\p{N}{1,3}", SIGNS, r"\s*[\r\n]+", HALVED_SPACES, r"\s"),)),
    ),
    "qwen2": ("Qwen 2, 2.5 and 3", QWEN_2),
    "deepseek-r1-qwen": ("DeepSeek R1 on Qwen", QWEN_2),
    "f2llmv2": ("F2LLM", QWEN_2),
    "kormo": ("KORMo", QWEN),
    "megrez": ("Megrez", QWEN),
    "stablelm2": ("StableLM 2", QWEN),
    "hunyuan": ("Hunyuan A13B", QWEN),
    "solar-open": ("Solar Open", QWEN),
    "grok-2": ("Grok 2", QWEN),
    "qwen35": ("Qwen 3.5", SplitRule((QWEN_35_WORDS,), is_nfc=True)),
    "ufakzeka": ("Ufakzeka", SplitRule((_any(WORD, r"\p{N}", SIGNS, SPACES),))),
    "laguna": ("Laguna", SplitRule((r"[^\n]+|[\n]+", SINGLE_DIGIT_WORDS))),
    "seed-coder": (
        "Seed-Coder",
        SplitRule((_any(CONTRACTIONS, WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", SPACES),)),
    ),
    "exaone-moe": (
        "K-EXAONE",
        SplitRule(
            (
                _any(
                    CONTRACTIONS,
                    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
                    r"\p{N}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
                    r"\s*[\r\n]|\s+(?!\S)|\s+",
                ),
            )
        ),
    ),
    "bailingmoe": ("Ling", BAILING),
    "bailingmoe2": ("Ling 2", BAILING),
    "llada-moe": ("LLaDA", BAILING),
    "gpt-4o": ("Phi-4 mini, gpt-oss", O200K),
    "llama4": ("Llama 4", O200K),
    "kanana2": ("Kanana 2", O200K),
    "talkie": ("Talkie", O200K),
    "minimax-m2": ("MiniMax M2", O200K),
    "granite-embed-multi-97m": ("Granite Embedding", replace(O200K, takes_whole_words=True)),
    "tiny_aya": ("Tiny Aya", COHERE_2),
    "cohere2moe": ("Cohere 2", COHERE_2),
    "tekken": (
        "Mistral Nemo, Mistral Small 3, Ministral",
        SplitRule((_any(CASED, r"\p{N}", SIGNS_AND_SLASHES, SPACES),), takes_whole_words=True, adds_bos=True),
    ),
    "kimi-k2": (
        "Kimi K2",
        SplitRule((_any(r"\p{Han}+", CASED_NOT_HAN, r"\p{N}{1,3}", SIGNS, SPACES),), takes_whole_words=True),
    ),
    "youtu": (
        "Youtu",
        SplitRule(
            (
                "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + CJK,  # noqa: RUF001
                _any(CASED_CONTRACTED, r"\p{N}", SIGNS_AND_SLASHES, SPACES),
            ),
            takes_whole_words=True,
        ),
    ),
    "deepseek-llm": (
        "DeepSeek 1",
        SplitRule(
            (
                r"[\r\n]",
                rf"\s?[{DEEPSEEK_LETTERS}]+",
                r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                r"\s+$",
                r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
                SINGLE_DIGITS,
            )
        ),
    ),
    "deepseek-coder": (
        "DeepSeek Coder 1",
        SplitRule(
            (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", SINGLE_DIGITS)
        ),
    ),
    "deepseek-v3": ("DeepSeek V3 and R1", DEEPSEEK_3),
    "hunyuan-dense": ("Hunyuan (dense)", DEEPSEEK_3),
    "hy_v4": ("Hunyuan 4", DEEPSEEK_3),
    "joyai-llm": ("JoyAI", DEEPSEEK_3),
    "spark2_5": (
        "Spark 2.5",
        SplitRule(
            (
                r"\p{N}{1,3}",
                CJK,
                _any(DEEPSEEK_WORDS, r" ?[\p{P}\p{S}]+", r"[\r\n]|\s+(?!\S)|\s+"),
                r"\p{N}",
            )
        ),
    ),
    "afmoe": (
        "Trinity",
        SplitRule((_threes(r"\p{N}", r"(?!\p{N})"), ASIAN, *DEEPSEEK_3.steps[2:])),
    ),
    "bloom": ("BLOOM", BLOOM),
    "poro-chat": ("Poro", BLOOM),
    "gpt3-finnish": ("GPT-3 Finnish", BLOOM),
    "viking": ("Viking", SplitRule((BLOOM_WORDS, SINGLE_DIGITS))),
    "superbpe": ("SuperBPE", SplitRule((r"\p{N}+", _threes(r"\d", r"(?!\d)")))),
    "chameleon": (
        "Chameleon",
        SplitRule(
            (
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                "([\t\n]|    |  )",
                SINGLE_DIGITS,
                SINGLE_SIGNS,
                GPT_2_WORDS,
            ),
            adds_bos=True,
        ),
    ),
    "gemma4": ("Gemma 4", GEMMA_4),
    "granite-embed-multi-311m": ("Granite Embedding", GEMMA_4),
    "sarvam-moe": ("Sarvam", replace(GEMMA_4, adds_bos=False)),
}
"""Name -> (models that have it, rule). Of llama.cpp's names `whitespace` is missing: only encoders have it."""
