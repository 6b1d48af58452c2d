"""What lies beside a released table and says how to train on it.

`noisy.parquet` comes with `noisy.release.json`: the plan, the mechanism's channel,
what each added column means, and a hash of the table, so that a table is never
taken for that of another release. Everything in it is public.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from tulle.privacy.fields import check_count, check_fields, check_format, check_text, parse_json
from tulle.privacy.plan import Plan

_FORMAT = "tulle label release 1"
_KEYS = (
    *("format", "plan", "mechanism", "columns", "num_rows", "table"),
    *("table_sha256", "randomness"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """A release of noisy labels. Every field is public information."""

    plan: Plan
    mechanism: Mapping[str, Any]
    """Settings and channel in plain data."""
    columns: Mapping[str, str]
    """Meaning of each column that was added."""
    num_rows: int
    table: str
    """Name of the file, without its folder."""
    table_sha256: str
    randomness: str
    is_secure: bool

    def to_json(self) -> str:
        """Readable JSON."""
        data = {
            "format": _FORMAT,
            "table": self.table,
            "num_rows": self.num_rows,
            "columns": dict(self.columns),
            "mechanism": dict(self.mechanism),
            "plan": self.plan.to_dict(),
            "randomness": {"description": self.randomness, "is_secure": self.is_secure},
            "table_sha256": self.table_sha256,
        }
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "ReleaseRecord":
        """Reads what `to_json` wrote."""
        data = parse_json("release record", text)
        check_format("release record", data, _FORMAT)
        fields = check_fields("release record", data, _KEYS)
        names = ("description", "is_secure")
        randomness = check_fields("randomness", fields["randomness"], names)
        return cls(
            plan=Plan.from_dict(fields["plan"]),
            mechanism=fields["mechanism"],
            columns=fields["columns"],
            num_rows=check_count("num_rows", fields["num_rows"]),
            table=check_text("table", fields["table"]),
            table_sha256=check_text("table_sha256", fields["table_sha256"]),
            randomness=check_text("description", randomness["description"]),
            is_secure=randomness["is_secure"] is True,
        )
