"""What tells one set of training rows from another."""

import hashlib

import numpy as np

from tulle.train.examples import ExampleSet


def content_fingerprint(examples: ExampleSet) -> str:
    """Ties a run to its rows: their data set and which of it they are."""
    digest = hashlib.sha256(examples.fingerprint.encode())
    if not examples.fingerprint:
        content = (examples.public_features, examples.sensitive_features, examples.labels)
        for part in (*content, examples.units):
            if part is not None:
                digest.update(np.ascontiguousarray(part).tobytes())
    if examples.rows is not None:
        digest.update(examples.rows.tobytes())
    return digest.hexdigest()
