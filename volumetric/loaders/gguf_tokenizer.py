"""Rebuild the tokenizer that a GGUF file describes: byte-level BPE, one of SentencePiece's, or WordPiece."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.hf_config import MAX_SIZE
from volumetric.loaders.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

logger: logging.Logger = logging.getLogger(__name__)

PREFIX: Final = "tokenizer.ggml."
MAX_LENGTH: Final = "volumetric.max_length"
"""Custom key of the maximum number of tokens of a text, which the format does not define."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types. Control and user-defined tokens are found in a text before merges are applied; only the latter count as
text; unused tokens fill rows of the embedding without a token, and byte tokens write characters without a piece."""
ENDS: Final = ("eos", "eot", "eom")
"""Keys of ids that end a text, a turn or a message."""
SAMPLING: Final = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
"""Values of a generation config → their keys, which llama.cpp uses as defaults."""
ROLES: Final = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "seperator": "sep_token",
    "cls": "cls_token",
    "mask": "mask_token",
}
"""Key of an id → role of its token, as spelled in the format."""
MODELS: Final = ("gpt2", "llama", "t5", "bert")
"""Kinds of tokenizers that can be rebuilt."""

# The regular expressions of the released tokenizer.json files; only the run of digits differs.
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# Words by case: capitals before small letters, with what may follow them, and runs of digits.
_CASES: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|"
    r"\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SHORT: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_SPLITS: Final[Mapping[str, str]] = {
    "llama-bpe": _WORDS % "{1,3}",
    "qwen2": _WORDS % "",
    "dbrx": _WORDS % "{1,3}",
    "gpt-4o": _CASES % (_SHORT, _SHORT, "{1,3}"),
    "tekken": _CASES % ("", "", ""),
}
_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "gpt-2": (
        *("phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code", "roberta-bpe"),
        *("mpt", "olmo", "jais"),
    ),
    "smollm": ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    "llama-bpe": ("llama3", "llama-v3", "smaug-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2"),
    "gpt-4o": ("llama4",),
    "qwen2": ("deepseek-r1-qwen",),
}
"""Other names in llama.cpp for the same expressions."""
_ALIASES: Final[Mapping[str, str]] = {name: kind for kind, names in _SAME.items() for name in names}
_ORIGINAL: Final = "open the original Hugging Face model, which has a tokenizer.json"
_DEFAULT: Final = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
"""Expressions by which llama.cpp splits, in order, for files without a pre-tokenizer."""
WHOLE: Final = ("llama-bpe", "tekken")
"""Kinds that keep a word that is a token, even if no merges lead to it; by default texts start with a begin token."""
COMPOSING: Final = ("qwen2", "modern-bert")
"""Kinds that normalise to NFC before a text is split."""
PRE_TOKENIZERS: Final = ("smollm", "gpt-2", "modern-bert", "default", *_SPLITS)
"""Kinds of pre-tokenizers that can be rebuilt."""


def read_tokenizer(file: GGUFSource, where: str) -> Tokenizer | None:
    """Return the tokenizer of a GGUF file, None if the file has none.

    A kind that cannot be rebuilt raises when the tokenizer is first used: the weights work without it.

    Raises
    ------
    CheckpointError
        Metadata are ill-typed, or refer to tokens outside the vocabulary.
    """
    tokens = file.metadata.get(PREFIX + "tokens")
    if tokens is None:
        return None
    if not isinstance(tokens, LazyStrings):
        raise CheckpointError(f"{where}: {PREFIX}tokens is not a list of strings")
    return _GGUFTokenizer(file, tokens, where).tokenizer()


class _GGUFTokenizer:
    """Metadata of one file, checked when they are needed; the vocabulary is decoded once."""

    def __init__(self, file: GGUFSource, tokens: LazyStrings, where: str) -> None:
        self._metadata = file.metadata
        self._where = where
        self._tokens = tokens.decode()
        self._types = self._token_types()
        model = file.metadata.get(PREFIX + "model")
        self._wordpiece = isinstance(model, str) and model == "bert"
        if self._wordpiece:
            from volumetric.loaders.gguf_wordpiece import plain_words

            special = np.flatnonzero(np.isin(self._types, (CONTROL, UNKNOWN)))
            named = (id for id in self._roles().values() if id is not None)
            self._tokens = plain_words(self._tokens, {*special.tolist(), *named})

    def _roles(self) -> dict[str, int | None]:
        """Id of each special token by its role."""
        if not self._wordpiece:
            return {role: self._id(f"{name}_token_id") for name, role in ROLES.items()}
        from volumetric.loaders.gguf_wordpiece import ROLES as WORDPIECE_ROLES

        ids: dict[str, int | None] = {}
        for role, (names, usual) in WORDPIECE_ROLES.items():
            candidates = [id for name in names if (id := self._id(f"{name}_token_id")) is not None]
            ids[role] = candidates[0] if candidates else usual if usual < len(self._tokens) else None
        return ids

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, which builds its backend at the first use."""
        roles = self._roles()
        special = np.flatnonzero(np.isin(self._types, (CONTROL, USER_DEFINED)))
        return Tokenizer(
            self._build,
            special_tokens={role: self._tokens[id] for role, id in roles.items() if id is not None},
            special_ids={self._tokens[id]: int(id) for id in special},
            max_length=self._max_length(),
            where=self._where,
        )

    def _max_length(self) -> int | None:
        value = self._metadata.get(MAX_LENGTH)
        if value is not None and (type(value) is not int or not 0 < value < MAX_SIZE):
            raise CheckpointError(f"{self._where}: {MAX_LENGTH} is {str(value)[:60]!r}, expected a number of tokens")
        return value

    def _token_types(self) -> np.ndarray[Any, Any]:
        types = self._metadata.get(PREFIX + "token_type", np.ones(len(self._tokens), np.int32))
        if not isinstance(types, np.ndarray) or types.shape != (len(self._tokens),):
            raise CheckpointError(f"{self._where}: {PREFIX}token_type does not fit the {len(self._tokens)} tokens")
        return types

    def _id(self, name: str) -> int | None:
        value = self._metadata.get(PREFIX + name)
        if value is not None and (type(value) is not int or not 0 <= value < len(self._tokens)):
            raise CheckpointError(f"{self._where}: {PREFIX}{name} is {value!r}, outside the vocabulary")
        return value

    def _flag(self, name: str, default: bool) -> bool:
        return default if (value := self._optional_flag(name)) is None else value

    def _optional_flag(self, name: str) -> bool | None:
        """Truth value, None if the file does not have it."""
        value = self._metadata.get(PREFIX + name)
        if value is None:
            return None
        if type(value) is not bool:
            raise CheckpointError(f"{self._where}: {PREFIX}{name} is {value!r}, expected true or false")
        return value

    def _build(self) -> tokenizers.Tokenizer:
        model = self._metadata.get(PREFIX + "model")
        if model not in MODELS:
            raise CheckpointError(
                f"{self._where}: tokenizer model {model!r} cannot be rebuilt from metadata; {', '.join(MODELS)} can",
                hint=_ORIGINAL,
            )
        # llama.cpp's converter and ours name embedding rows without a token so; otherwise "unused" is not reliable.
        padding = {int(id) for id in np.flatnonzero(self._types == UNUSED) if self._tokens[id].startswith("[PAD")}
        used = [id for id in range(len(self._tokens)) if id not in padding]
        vocabulary = {self._tokens[id]: id for id in used}
        if len(vocabulary) != len(used):
            raise CheckpointError(f"{self._where}: the vocabulary has a duplicate token")
        if model == "bert":
            return self._words(vocabulary)
        if model == "t5":
            built, begins = self._unigram(sorted(padding)), False
        else:
            built, begins = self._byte_level(vocabulary) if model == "gpt2" else self._sentencepiece(vocabulary)
        self._add_tokens(built, unknown=model in ("llama", "t5"))
        self._wrap(built, begins=begins, ends=model == "t5")
        return built

    def _add_tokens(self, built: tokenizers.Tokenizer, *, unknown: bool = False) -> None:
        """Register the tokens that are matched before a text is split, optionally also the unknown token."""
        from tokenizers import AddedToken

        for kind, special in ((CONTROL, True), (USER_DEFINED, False), *([(UNKNOWN, True)] if unknown else [])):
            ids = np.flatnonzero(self._types == kind)
            added = [AddedToken(self._tokens[id], special=special, normalized=False) for id in ids]
            (built.add_special_tokens if special else built.add_tokens)(added)

    def _words(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """WordPiece; a text is always enclosed by two special tokens, as in llama.cpp."""
        from volumetric.loaders.gguf_wordpiece import rebuilt

        roles = {role: self._tokens[id] for role, id in self._roles().items() if id is not None}
        missing = [role for role in ("unk_token", "cls_token", "sep_token") if role not in roles]
        if missing:
            raise CheckpointError(f"{self._where}: the vocabulary has no {' or '.join(missing)}")
        built = rebuilt(
            vocabulary,
            roles,
            lowercase=self._optional_flag("normalizer.lowercase"),
            strip_accents=self._optional_flag("normalizer.strip_accents"),
        )
        self._add_tokens(built)
        return built

    def _byte_level(self, vocabulary: dict[str, int]) -> tuple[tokenizers.Tokenizer, bool]:
        """Byte-level BPE, and the default for whether texts begin with a begin token."""
        from tokenizers import Tokenizer, decoders, models

        named = str(self._metadata.get(PREFIX + "pre", "default"))
        kind = _ALIASES.get(named, named)
        if kind not in PRE_TOKENIZERS:
            raise CheckpointError(
                f"{self._where}: pre-tokenizer {named!r} is not among {', '.join((*PRE_TOKENIZERS, *_ALIASES))}",
                hint=_ORIGINAL,
            )
        bpe = models.BPE(vocab=vocabulary, merges=self._merges(vocabulary), ignore_merges=kind in WHOLE)
        built = Tokenizer(bpe)
        if kind in COMPOSING:
            from tokenizers.normalizers import NFC

            built.normalizer = NFC()
        built.pre_tokenizer = pre_tokenizer_of(kind)
        built.decoder = decoders.ByteLevel()
        return built, kind in WHOLE

    def _merges(self, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
        """Pairs of tokens, as the same string objects as in the vocabulary, to save memory."""
        merges = self._metadata.get(PREFIX + "merges")
        if not isinstance(merges, LazyStrings):
            raise CheckpointError(f"{self._where}: {PREFIX}merges is missing or not a list of strings")

        def own(part: str) -> str:
            id = vocabulary.get(part)
            return part if id is None else self._tokens[id]

        pairs: list[tuple[str, str]] = []
        for merge in merges:
            parts = merge.split(" ")
            if len(parts) != 2:
                raise CheckpointError(f"{self._where}: a merge does not have two parts")
            pairs.append((own(parts[0]), own(parts[1])))
        return pairs

    def _sentencepiece(self, vocabulary: dict[str, int]) -> tuple[tokenizers.Tokenizer, bool]:
        """SentencePiece's BPE, whose merges follow from scores; texts begin with a begin token by default."""
        scores = self._scores()
        normal = np.flatnonzero(self._types == NORMAL)
        unknown = self._id("unknown_token_id")
        from volumetric.loaders.sentencepiece_bpe import sentencepiece_bpe

        return sentencepiece_bpe(
            vocabulary,
            [self._tokens[id] for id in normal[np.argsort(-scores[normal], kind="stable")]],
            unknown=None if unknown is None else self._tokens[unknown],
            prefix=self._flag("add_space_prefix", True),
        ), True

    def _scores(self) -> np.ndarray[Any, Any]:
        scores = self._metadata.get(PREFIX + "scores")
        if not isinstance(scores, np.ndarray) or scores.shape != (len(self._tokens),) or scores.dtype.kind != "f":
            raise CheckpointError(f"{self._where}: {PREFIX}scores is missing or does not fit the tokens")
        if not np.isfinite(scores).all():
            raise CheckpointError(f"{self._where}: {PREFIX}scores contains values that are not numbers")
        return scores

    def _unigram(self, padding: list[int]) -> tokenizers.Tokenizer:
        """SentencePiece's unigrams. Missing flags are false, as in llama.cpp."""
        from volumetric.loaders.gguf_unigram import CHARSMAP, MERGE_SPACES, PREFIX_SPACE, read_charsmap, unigram

        unknown = self._id("unknown_token_id")
        if unknown is None:
            unknown = next(iter(np.flatnonzero(self._types == UNKNOWN).tolist()), 2)
        if unknown >= len(self._tokens):
            raise CheckpointError(f"{self._where}: the vocabulary has no unknown token")
        return unigram(
            self._tokens,
            self._scores(),
            normal=np.flatnonzero(np.isin(self._types, (NORMAL, BYTE))),
            unknown=unknown,
            unused=padding,
            byte_fallback=bool((self._types == BYTE).any()),
            charsmap=read_charsmap(self._metadata.get(PREFIX + CHARSMAP), self._where),
            prefix=self._flag(PREFIX_SPACE, False),
            merge=self._flag(MERGE_SPACES, False),
        )

    def _wrap(self, built: tokenizers.Tokenizer, *, begins: bool, ends: bool) -> None:
        """Add the begin and end tokens around a text, as the file or the defaults specify."""
        from tokenizers.processors import TemplateProcessing

        bos = self._id("bos_token_id") if self._flag("add_bos_token", begins) else None
        eos = self._id("eos_token_id") if self._flag("add_eos_token", ends) else None
        around = [(self._tokens[id], id) for id in (bos, eos) if id is not None]
        if around:
            before = [] if bos is None else [f"{self._tokens[bos]}:0"]
            after = [] if eos is None else [f"{self._tokens[eos]}:0"]
            one, two = [*before, "$A:0", *after], [*before, "$B:1", *after]
            built.post_processor = TemplateProcessing(single=one, pair=one + two, special_tokens=around)


def pre_tokenizer_of(kind: str) -> Any:
    """Return the pre-tokenizer that GGUF files call `kind`, one of `PRE_TOKENIZERS`."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    if kind in ("gpt-2", "modern-bert"):
        return ByteLevel(add_prefix_space=False)
    if kind == "default":
        cuts = [Split(Regex(expression), "isolated") for expression in _DEFAULT]
        return Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
    if kind == "smollm":
        return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    return Sequence([Split(Regex(_SPLITS[kind]), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


def generation_ids(file: GGUFSource) -> tuple[list[int | None], dict[str, Any]]:
    """Ids that end a text, a turn or a message, and the rest of a generation config.

    A file with a temperature enables sampling.
    """

    def id_of(name: str) -> int | None:
        value = file.metadata.get(f"{PREFIX}{name}_token_id")
        return value if type(value) is int else None

    ends = [id_of(name) for name in ENDS]
    values = {name: file.metadata.get(key) for name, key in SAMPLING.items()}
    # They are float32 in files: 0.6 is read as 0.6000000238.
    read = {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}
    temperature = read["temperature"]
    sampled = isinstance(temperature, (int, float)) and temperature > 0
    return ends, {"bos_token_id": id_of("bos"), "pad_token_id": id_of("padding"), "do_sample": sampled or None, **read}
