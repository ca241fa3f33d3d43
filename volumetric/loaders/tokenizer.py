"""Tokenizer: text ↔ token ids, built at the first use, and a streaming decoder for ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, DoesNotFitError, GenerationError
from volumetric.loaders.renamed_tokens import renamed_json
from volumetric.loaders.stream_decoder import StreamDecoder
from volumetric.loaders.tokenizer_errors import TokenizerErrors

if TYPE_CHECKING:
    import tokenizers

SHORT: Final = 2**16
"""Number of characters that are encoded in a twentieth of a second."""
PROBED: Final = 16
"""Characters per allowed token at the beginning of a text, whose tokens are counted first."""
MANY: Final = 4096
"""Number of ids whose decoding takes long."""
MAX_HOLES: Final = 1_000_000
"""Maximum number of unused ids below the largest one."""
_INDEPENDENT: Final = frozenset({"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"})
"""Decoders that add the same text for a token behind any whole characters, see `are_independent`."""
HALF: Final = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair."""


class Encoded(NamedTuple):
    """A text as input of an encoder."""

    ids: list[int]
    types: list[int]


class Tokenizer:
    """A tokenizer of the ``tokenizers`` library, built at the first use.

    Parameters
    ----------
    build : function that builds the library's object; its exceptions become a `CheckpointError`, see `TokenizerErrors`
    special_tokens : role → text, ``{"bos_token": "<s>"}``; chat templates use these
    special_ids : text → id of special tokens, if known without building
    add_bos : whether an encoded text starts with the begin-of-text token; None leaves it to the post-processor
    max_length : maximum tokens of a text in the tokenizer's files, None if they have no limit
    where : name for messages
    """

    def __init__(
        self,
        build: Callable[[], tokenizers.Tokenizer],
        *,
        special_tokens: Mapping[str, str],
        special_ids: Mapping[str, int],
        add_bos: bool | None = None,
        max_length: int | None = None,
        where: str,
    ) -> None:
        self._make: Callable[[], tokenizers.Tokenizer] | None = build
        self.special_tokens: dict[str, str] = dict(special_tokens)
        self._special_ids = dict(special_ids)
        self._add_bos = add_bos
        self.max_length = max_length
        self._where = where
        self._lookups = TokenizerErrors(where, "the tokenizer cannot be read", CheckpointError)
        self._encoding = TokenizerErrors(where, "the text cannot be encoded", GenerationError)
        self._decoding = TokenizerErrors(where, "the ids cannot be decoded", GenerationError)

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        """The library's tokenizer, built at the first use.

        Raises
        ------
        CheckpointError
            The files are damaged, or of a kind that cannot be built.
        """
        with TokenizerErrors(self._where, "the tokenizer cannot be built", CheckpointError):
            assert self._make is not None  # until it is built
            built = self._make()
            # Some files contain the truncation of the training run.
            built.no_truncation()
            built.no_padding()
            self._make = None  # frees its data, such as all tokens as text
            return built

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass the library's object to another process."""
        return _passed_on, (
            self.backend,
            {
                "special_tokens": self.special_tokens,
                "special_ids": self._special_ids,
                "add_bos": self._add_bos,
                "max_length": self.max_length,
                "where": self._where,
            },
        )

    def prepare(self) -> None:
        """Build the library's tokenizer now; errors are raised at the first use, since models run without text."""
        with suppress(CheckpointError):
            _ = self.backend

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        with self._lookups:
            return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def bos_id(self) -> int | None:
        """Id of the begin-of-text token."""
        return self.token_id(self.special_tokens.get("bos_token"))

    @property
    def eos_id(self) -> int | None:
        """Id of the end-of-text token."""
        return self.token_id(self.special_tokens.get("eos_token"))

    def token_id(self, token: str | None) -> int | None:
        """Return the id of a token given by its exact text, None if there is no such token."""
        if token is None or token in self._special_ids:
            return None if token is None else self._special_ids[token]
        with self._lookups:
            return self.backend.token_to_id(token)

    @property
    def added_tokens(self) -> dict[str, bool]:
        """Text of each added token, matched before a text is split → whether it is special."""
        with self._lookups:
            return {token.content: token.special for token in self.backend.get_added_tokens_decoder().values()}

    def with_renamed_tokens(self, names: Mapping[str, str]) -> Tokenizer:
        """Return this tokenizer with other texts for some tokens, with the same ids.

        Parameters
        ----------
        names : text of a token → its new text
        """

        def build() -> tokenizers.Tokenizer:
            from tokenizers import Tokenizer as Backend

            return Backend.from_str(json.dumps(renamed_json(json.loads(self.to_json()), names), ensure_ascii=False))

        return Tokenizer(
            build,
            special_tokens={role: names.get(text, text) for role, text in self.special_tokens.items()},
            special_ids={names.get(text, text): id for text, id in self._special_ids.items()},
            add_bos=self._add_bos,
            max_length=self.max_length,
            where=self._where,
        )

    def token(self, id: int) -> str | None:
        """Return a token as in the vocabulary, None if there is no such id."""
        with self._lookups:
            return self.backend.id_to_token(_valid_id(id))

    def encode(self, text: str, *, add_special_tokens: bool = True, limit: int | None = None) -> list[int]:
        """Return the token ids of `text`. Special tokens in the text are matched.

        Parameters
        ----------
        add_special_tokens : whether to add the model's special tokens around a text, usually a begin-of-text token or
            none. False for a rendered chat template, which contains them.
        limit : maximum number of tokens: a text that is much too long is refused before it is encoded, so that time and
            memory depend on `limit` and not on the text; a text that is slightly too long is still returned

        Raises
        ------
        DoesNotFitError
            The text has more characters than `limit` of the longest tokens, or its beginning has more than twice as
            many tokens.
        GenerationError
            The text contains half of a surrogate pair, which cannot be encoded, or characters that the vocabulary
            lacks.
        """
        try:  # the guard is entered only after an error, as in `decode`
            if limit is not None:
                self.check_length(text, limit)
            ids = self._ids(text, add_special_tokens=add_special_tokens)
        except DoesNotFitError:
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                check_halves(text)
            with self._encoding:
                raise
        if add_special_tokens and self._add_bos is not None and self.bos_id is not None:
            return self._with_bos(text, ids, self.bos_id)
        return ids

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        # A batch call releases the GIL, `encode` of a single text does not.
        (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return encoding.ids

    def check_length(self, text: str, limit: int) -> None:
        """Raise `DoesNotFitError` for a text that certainly has more tokens than `limit`, see `encode`.

        Short texts are not checked, so the caller can report their exact number of tokens.
        """
        few = max(SHORT, PROBED * limit)
        if len(text) <= few:
            return
        if len(text) > limit * self.longest:
            excess = f"the prompt has {len(text)} characters, the context holds {limit} tokens"
            raise DoesNotFitError(f"{excess} of at most {self.longest} characters each")
        # Twice: at the end of a cut-off beginning there may be tokens that the whole text does not have.
        count = len(self._ids(text[:few], add_special_tokens=False))
        if count > 2 * limit:
            excess = f"the first {few} of {len(text)} characters of the prompt have {count} tokens"
            raise DoesNotFitError(f"{excess}, the context holds {limit}")

    @cached_property
    def longest(self) -> int:
        """Characters of the longest token in the vocabulary, an upper bound for the characters of a token in a text."""
        with self._lookups:
            return max(map(len, self.backend.get_vocab(with_added_tokens=True)), default=1)

    def _with_bos(self, text: str, ids: list[int], bos: int) -> list[int]:
        """Add or remove `bos` at the start of the ids, if the configuration overrides the post-processor."""
        if self._add_bos:
            return ids if ids[:1] == [bos] else [bos, *ids]
        with self._encoding:
            plain = self._ids(text, add_special_tokens=False)
        return ids[1:] if ids[:1] == [bos] and ids[1 : 1 + len(plain)] == plain else ids

    def encode_texts(self, texts: Sequence[str | tuple[str, str]], limit: int) -> list[Encoded]:
        """Return texts, or pairs of texts, as input of an encoder: with special tokens, truncated to `limit` tokens.

        The longer text of a pair is truncated first; special tokens stay, as in the library's truncation.

        Raises
        ------
        GenerationError
            As `encode`; or `limit` leaves no room for a text.
        """
        with self._encoding:
            encodings = self.backend.encode_batch_fast([*texts], add_special_tokens=True)
            for i, text in enumerate(texts):
                if len(encodings[i].ids) > limit:
                    encodings[i] = self._encode_truncated(text, limit)
            return [Encoded(one.ids, one.type_ids) for one in encodings]

    def _encode_truncated(self, text: str | tuple[str, str], limit: int) -> tokenizers.Encoding:
        """Encode and truncate a text, or a pair, that is too long."""
        pair = not isinstance(text, str)
        room = limit - self.backend.num_special_tokens_to_add(pair)
        if room < 1:
            raise GenerationError(f"{limit} tokens leave no room for a text in addition to special tokens")
        parts = [self.backend.encode(part, add_special_tokens=False) for part in ([text] if not pair else text)]
        sizes = [room] if not pair else _shares(len(parts[0].ids), len(parts[-1].ids), room)
        for part, size in zip(parts, sizes, strict=True):
            part.truncate(size)
        return self.backend.post_process(parts[0], parts[1] if pair else None, add_special_tokens=True)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary are skipped.

        Raises
        ------
        GenerationError
            An id is negative or has more than 32 bits.
        """
        try:  # entering the guard would cost time for each token
            checked = [*map(_valid_id, ids)]
            if len(checked) < MANY:
                return self.backend.decode(checked, skip_special_tokens=skip_special_tokens)
            # A batch call releases the GIL, but costs more than decoding a few ids.
            (text,) = self.backend.decode_batch([checked], skip_special_tokens=skip_special_tokens)
            return text
        except BaseException:
            with self._decoding:
                raise

    @cached_property
    def texts_by_id(self) -> tuple[dict[int, str], dict[int, str]] | None:
        """Texts of tokens behind others, without and with special ones, filled by decoders; None if they differ."""
        with self._lookups:
            decoder = self.backend.decoder
            state: dict[str, Any] = {} if decoder is None else json.loads(decoder.__getstate__())
        return ({}, {}) if are_independent(state.get("decoders", [state])) else None

    def decoder(self, *, skip_special_tokens: bool = True, shown: Set[int] = frozenset()) -> StreamDecoder:
        """Return a decoder for one stream of ids."""
        return StreamDecoder(self, skip_special_tokens=skip_special_tokens, shown=shown)

    def save(self, path: Path) -> None:
        """Write ``tokenizer.json``."""
        write_atomic(path, self.to_json().encode())

    def to_json(self) -> str:
        """Content of ``tokenizer.json``.

        Raises
        ------
        CheckpointError
            Ids are far above the number of tokens: the library iterates over all ids up to the largest.
        """
        with self._lookups:
            ids = self.backend.get_vocab(with_added_tokens=True).values()
            if max(ids, default=0) > MAX_HOLES + len(ids):
                raise CheckpointError(
                    f"{self._where}: damaged tokenizer: {len(ids)} tokens have ids up to {max(ids)}",
                    hint="download the file again",
                )
            return self.backend.to_str(pretty=False)


def are_independent(decoders: Sequence[Mapping[str, Any]]) -> bool:
    """Whether decoders, as in ``tokenizer.json``, add the same text for a token behind any whole characters."""
    fused = False
    for part in decoders:
        kind = part.get("type")
        # On the whole text, a pattern may match across tokens, and an end may be stripped.
        if kind not in _INDEPENDENT or (fused and kind == "Replace"):
            return False
        if kind == "Strip" and (part.get("start", 0) > 1 or part.get("stop", 0)):
            return False
        fused = fused or kind == "Fuse"
    return True


def _passed_on(backend: tokenizers.Tokenizer, options: Mapping[str, Any]) -> Tokenizer:
    return Tokenizer(lambda: backend, **options)


def check_halves(text: str) -> None:
    """Raise `GenerationError` for a text that cannot be encoded."""
    if half := HALF.search(text):
        raise GenerationError(
            f"the text contains {half[0]!a}, half of a surrogate pair", hint="decode the text from bytes as UTF-8"
        )


def _valid_id(id: int) -> int:
    if not 0 <= id < 2**32:
        raise GenerationError(f"{id} is not a token id", hint="give whole numbers from 0")
    return int(id)


def _shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Number of tokens that two texts keep: the longer one is truncated first, then both equally."""
    short = min(first, second)
    long = max(short, room - short)
    if short + long > room:
        short, long = room // 2, room - room // 2
    return (short, long) if first <= second else (long, short)
