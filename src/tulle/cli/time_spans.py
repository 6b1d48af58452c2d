"""The time that data are from, as --at and --until say it."""

from datetime import UTC, date, datetime, time

from tulle.errors import ConfigError


def span_of(at: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """A bare date stands for its whole day."""
    if at is None:
        return None, None if until is None else _moments("--until", until)[1]
    first, last_of_day = _moments("--at", at)
    return first, last_of_day if until is None else _moments("--until", until)[1]


def _moments(option: str, text: str) -> tuple[datetime, datetime]:
    try:
        if len(text) == len("2026-01-14"):
            day = date.fromisoformat(text)
            return datetime.combine(day, time.min, UTC), datetime.combine(day, time.max, UTC)
        # "2026-W03" and "20260114" would be read as one midnight and charge too little.
        if text[10:11] not in {"T", " "}:
            raise ValueError(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text} must be a date or a time, e.g. 2026-01-14 or 2026-01-14T09:30Z."
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment, moment
