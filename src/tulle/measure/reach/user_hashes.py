"""Keyed hashes of user ids, the same at every party that has the key.

Without a key, anybody could compute where a user he knows is in a sketch.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tulle.data.keyed_hash import LEAST_KEY_BYTES, hash_columns
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import Words

UserIds = Sequence[str] | npt.NDArray[np.generic]


@dataclasses.dataclass(frozen=True, eq=False)
class UserHashes:
    """One 64-bit word for each id. Sensitive."""

    words: Words = dataclasses.field(repr=False)

    @property
    def uniforms(self) -> npt.NDArray[np.float64]:
        """The words as numbers in [0, 1)."""
        return (self.words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def hash_users(user_ids: UserIds, key: bytes, purpose: str) -> UserHashes:
    """Hashes ids for one purpose; other purposes get unrelated words.

    Whole numbers are hashed in columns, text one by one. 7 and "7" are different users.
    """
    check_key(key)
    ids = np.asarray(user_ids)
    if ids.ndim != 1:
        raise DataError(f"user_ids has {ids.ndim} dimensions; give one id for each user.")
    if ids.size == 0:
        return UserHashes(np.zeros(0, np.uint64))
    if ids.dtype.kind in "iu":
        return UserHashes(hash_columns(key, f"reach {purpose}", ids.astype(np.int64)))
    if not all(isinstance(user_id, str) for user_id in user_ids):
        raise DataError("user_ids must be text or whole numbers without nulls; drop such rows.")
    inner = hashlib.blake2b(purpose.encode(), key=hashlib.blake2b(key).digest()).digest()
    digests = b"".join(
        hashlib.blake2b(str(user_id).encode(), key=inner, digest_size=8).digest()
        for user_id in user_ids
    )
    return UserHashes(np.frombuffer(digests, "<u8").astype(np.uint64))


def check_key(key: object) -> None:
    """Refuses keys that could be guessed."""
    if not isinstance(key, bytes) or len(key) < LEAST_KEY_BYTES:
        raise ConfigError(
            f"key must have at least {LEAST_KEY_BYTES} bytes; "
            "make one with secrets.token_bytes(16) and share it among the parties."
        )
