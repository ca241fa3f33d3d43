"""The tokenizer of BERT directories that have only vocab.txt, as in transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import CheckpointError
from volumetric.loaders.json_file import read_bytes

if TYPE_CHECKING:
    import tokenizers

MAX_VOCABULARY_BYTES: Final = 64_000_000


def wordpiece(directory: Path, config: Mapping[str, Any], special: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Build a WordPiece tokenizer (Schuster & Nakajima 2012) from vocab.txt.

    Parameters
    ----------
    config : content of tokenizer_config.json: do_lower_case, strip_accents, tokenize_chinese_chars
    special : role → text of special tokens, BERT's unless given

    Raises
    ------
    CheckpointError
        The vocabulary is not text, is empty, or lacks a special token.
    """
    path = directory / "vocab.txt"
    try:
        text = read_bytes(path, MAX_VOCABULARY_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error.reason}", hint="download the file again") from error
    words = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    vocabulary = {word: id for id, word in enumerate(words)}
    roles = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    tokens = {role: special.get(f"{role}_token", token) for role, token in roles.items()}
    missing = [token for token in (tokens["unk"], tokens["cls"], tokens["sep"]) if token not in vocabulary]
    if missing:
        raise CheckpointError(f"{path} has {len(words)} lines, but none is {' or '.join(missing)}")
    accents = config.get("strip_accents")
    return build_wordpiece(
        vocabulary,
        {f"{role}_token": token for role, token in tokens.items()},
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=accents if isinstance(accents, bool) else None,
        chinese=bool(config.get("tokenize_chinese_chars", True)),
    )


def build_wordpiece(
    vocabulary: dict[str, int],
    roles: Mapping[str, str],
    *,
    lowercase: bool,
    strip_accents: bool | None,
    chinese: bool = True,
) -> tokenizers.Tokenizer:
    """Build a WordPiece tokenizer with BERT's normalizer, pre-tokenizer and special tokens around a text.

    Parameters
    ----------
    vocabulary : token → id, with ``##`` before continuations of a word
    roles : role → special token; the vocabulary has those of ``unk_token``, ``cls_token`` and ``sep_token``
    lowercase : whether to lowercase
    strip_accents : whether to drop accents; None: as `lowercase`
    chinese : whether each Chinese character is a word
    """
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece

    built = Tokenizer(WordPiece(vocabulary, unk_token=roles["unk_token"]))  # pyright: ignore[reportCallIssue]  (its stub lacks the arguments)
    built.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=chinese
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.add_special_tokens([token for token in roles.values() if token in vocabulary])
    ends = [(token, vocabulary[token]) for token in (roles["sep_token"], roles["cls_token"])]
    built.post_processor = processors.BertProcessing(*ends)
    built.decoder = decoders.WordPiece()
    return built
