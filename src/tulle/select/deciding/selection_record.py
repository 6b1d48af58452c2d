"""What lies beside a file of choices and says how they came about.

`choices.parquet` comes with `choices.release.json`: the plan, the settings in plain data, counts
of decisions that public data gave, and a hash of the file. Everything in it is public.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from tulle.privacy.fields import check_count, check_fields, check_format, check_text, parse_json
from tulle.privacy.plan import Plan

_FORMAT = "tulle selection 1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionRecord:
    """A release of choices. Every field is public information."""

    plan: Plan
    settings: str
    """The settings file of the selection, as text."""
    num_requests: int
    """Auctions with an eligible ad."""
    num_without_ad: int
    """Auctions in which no ad reaches the reserve."""
    num_personalised: int
    """Those whose private scores were used."""
    columns: Mapping[str, str]
    """Meaning of each column of the table."""
    table: str
    """Name of the file, without its folder."""
    table_sha256: str
    randomness: str
    is_secure: bool

    def to_json(self) -> str:
        """Readable JSON."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data |= {"format": _FORMAT, "plan": self.plan.to_dict(), "columns": dict(self.columns)}
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "SelectionRecord":
        """Reads what `to_json` wrote."""
        names = [field.name for field in dataclasses.fields(cls)]
        data = parse_json("selection record", text)
        check_format("selection record", data, _FORMAT)
        fields: dict[str, Any] = dict(check_fields("selection record", data, ("format", *names)))
        del fields["format"]
        for name in ("settings", "table", "table_sha256", "randomness"):
            check_text(name, fields[name])
        for name in ("num_requests", "num_without_ad", "num_personalised"):
            check_count(name, fields[name], least=0)
        is_secure = fields["is_secure"] is True
        return cls(**fields | {"plan": Plan.from_dict(fields["plan"]), "is_secure": is_secure})
