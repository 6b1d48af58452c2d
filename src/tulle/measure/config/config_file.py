"""Settings of a measurement as a TOML file. Paths are relative to the file."""

import dataclasses
from pathlib import Path
from typing import Any

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, LogColumns, TableSource
from tulle.measure.config.attribution_table import read_attribution, read_game
from tulle.measure.config.query_table import read_query
from tulle.measure.queries.measure_config import MeasureConfig
from tulle.privacy.fields import check_finite, check_text
from tulle.privacy.units import Unit
from tulle.runs.toml_tables import check_table, read_toml

_TABLES = ("log", "columns", "attribution", "privacy", "query", "name")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ConfigFile:
    """A measurement as its file describes it."""

    config: MeasureConfig
    history_paths: dict[str, Path]
    """Where queries whose levels share by history find it."""


def read_config(path: Path) -> ConfigFile:
    """Reads the settings of a measurement. Reads no data but lists of keys.

    Raises:
      ConfigError: A setting is unknown, missing or wrong.
      DataError: The file, or one with keys, cannot be read.
    """
    data = check_table(path.name, read_toml(path), ("log", "privacy", "query"), _TABLES)
    columns = _columns(data.get("columns", {}))
    folder = path.parent
    queries = data["query"]
    if not isinstance(queries, list):
        raise ConfigError("write each query as a table [[query]] with two brackets.")
    privacy = check_table(
        "[privacy]",
        data["privacy"],
        ("unit", "epsilon"),
        ("delta", "noise", "confidence", "key_share"),
    )
    attribution = data.get("attribution")
    game = read_game(attribution)
    learnt: dict[str, Any] = {} if game is None else {"game": game[0], "game_share": game[1]}
    config = MeasureConfig(
        name=data.get("name", path.stem),
        log=_log(data["log"], columns, folder),
        attribution=None if attribution is None else read_attribution(attribution),
        unit=Unit.parse(check_text("[privacy] unit", privacy["unit"])),
        queries=tuple(read_query(query, columns=columns, folder=folder) for query in queries),
        **learnt,
        **_numbers(privacy),
    )
    return ConfigFile(
        config=config,
        history_paths={
            query["name"]: folder / check_text("history", query["history"])
            for query in queries
            if "history" in query
        },
    )


def _numbers(privacy: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {
        name: check_finite(f"[privacy] {name}", privacy[name])
        for name in ("epsilon", "delta", "confidence", "key_share")
        if name in privacy
    }
    if "noise" in privacy:
        given["noise"] = check_text("[privacy] noise", privacy["noise"])
    return given


def _columns(table: object) -> LogColumns:
    names = [field.name for field in dataclasses.fields(LogColumns)]
    return LogColumns(**check_table("[columns]", table, (), names))


def _log(table: object, columns: LogColumns, folder: Path) -> AdLog:
    fields = check_table("[log]", table, ("impressions",), ("conversions", "database", "version"))
    database = fields.get("database")
    if database is not None:
        database = folder / check_text("[log] database", database)
    sources = {
        side: _source(f"[log] {side}", fields[side], folder, database, fields.get("version"))
        for side in ("impressions", "conversions")
        if side in fields
    }
    return AdLog(
        impressions=sources["impressions"],
        conversions=sources.get("conversions"),
        columns=columns,
    )


def _source(
    what: str, named: object, folder: Path, database: Path | None, version: str | None
) -> TableSource:
    names = [check_text(what, n) for n in (named if isinstance(named, list) else [named])]
    if database is not None or version is not None:
        if len(names) != 1:
            raise ConfigError(f"{what} must be one table of the database.")
        return DatabaseTable(table=names[0], database=database, version=version)
    paths = [path for name in names for path in _files(what, folder, name)]
    return FileTable(paths=tuple(paths))


def _files(what: str, folder: Path, name: str) -> list[Path]:
    if not any(character in name for character in "*?["):
        return [folder / name]
    root = Path(name)
    start = Path(root.anchor) if root.is_absolute() else folder
    try:
        found = sorted(start.glob(str(root.relative_to(root.anchor))))
    except ValueError as error:
        raise ConfigError(f"{what}={name!r} is no pattern of file names: {error}.") from None
    if not found:
        raise DataError(f"{what}: no file is named {name!r}.")
    return found
