"""Writes synthetic click and conversion logs in the formats of the public logs.

A layout says how the codes of a synthetic row become the text of each column.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tulle.data.formats.public import ATTRIBUTION, DISPLAY, SEARCH
from tulle.data.formats.public import TAOBAO as TAOBAO_LAYOUT
from tulle.data.synth.clicks import CHUNK_ROWS, SynthBlock, World, generate_blocks, world_of
from tulle.data.synth.shapes import TAOBAO, USER, SynthShape
from tulle.data.synth.table_files import (
    TableForm,
    TextMatrix,
    blank_where,
    choose_text,
    constant_text,
    decimal_text,
    hex_text,
    integer_text,
    join_lines,
    write_table,
)
from tulle.data.synth.truth import entity_words
from tulle.data.synth.zipf import CodeArray, salt_of, scramble, uniforms
from tulle.data.tables.layout import Layout
from tulle.data.threads import map_in_order
from tulle.errors import ConfigError

FloatArray = npt.NDArray[np.float64]

_DAY = 86_400
# Few enough that the lines of one piece stay in the processor's cache.
_ROWS_AT_ONCE = 1 << 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogText:
    """How the rows of one log are written."""

    layout: Layout
    fields: Callable[[SynthBlock, int], dict[str, TextMatrix]]
    """The fields of a block's rows by column, given the seed."""
    names: frozenset[str] = frozenset()
    """Columns that hold names; the others hold numbers."""
    reals: frozenset[str] = frozenset()
    """Columns of numbers with a fraction."""

    def lines(self, block: SynthBlock, seed: int) -> bytes:
        """The lines of a block of rows."""
        pieces = []
        for start in range(block.first_row, block.first_row + len(block), _ROWS_AT_ONCE):
            part = block.rows(start, start + _ROWS_AT_ONCE)
            fields = self.fields(part, seed)
            columns = [fields[name] for name in self.layout.columns]
            pieces.append(join_lines(columns, self.layout.separator))
        return b"".join(pieces)


def text_of(shape: SynthShape) -> LogText:
    """How the log that a shape imitates is written, by the shape's name."""
    if shape.name not in _TEXTS:
        raise ConfigError(
            f"shape {shape.name!r} has no text form, only {', '.join(_TEXTS)} have one; "
            "use generate_blocks() and write its arrays."
        )
    return _TEXTS[shape.name]


def value_words(column: str, codes: CodeArray) -> npt.NDArray[np.uint32]:
    """The names of a column's values: one 32-bit word for each code, one to one."""
    return scramble(codes, salt_of(f"value of {column}"))


def taobao_numbers(column: str, codes: CodeArray) -> TextMatrix:
    """Values of an ad's or a user's column as Taobao's tables show them."""
    if column == "price":
        return decimal_text(10 * (codes.astype(np.int64) - 1), 1)
    first_is_zero = column in {"cms_segid", "cms_group_id", "age_level", "occupation"}
    text = integer_text(codes - 1 if first_is_zero else codes)
    missing = codes == 0
    if column == "brand":
        return choose_text(~missing, text, constant_text("NULL", len(codes)))
    return blank_where(missing, text)


def _display_fields(block: SynthBlock, seed: int) -> dict[str, TextMatrix]:
    del seed
    fields = {"label": integer_text(block.label)}
    for column, codes in block.columns.items():
        if column.startswith("int"):
            # The second count has -3 for its smallest value in the public log.
            text = integer_text(codes - (4 if column == "int_feature_2" else 1))
        else:
            text = hex_text(value_words(column, codes))
        fields[column] = blank_where(codes == 0, text)
    return fields


def _attribution_fields(block: SynthBlock, seed: int) -> dict[str, TextMatrix]:
    converted = block.label == 1
    clicked = _uniforms(block, seed, "click") < 0.36
    known = converted & clicked
    delay = _lognormals(block, seed, "delay", 10.5, 1.8, 30 * _DAY)
    num_clicks = 1 + (-2 * np.log(_uniforms(block, seed, "click_nb"))).astype(np.int64)
    place = (_uniforms(block, seed, "click_pos") * num_clicks).astype(np.int64)
    since = _lognormals(block, seed, "time_since_last_click", 10, 2, 30 * _DAY)
    clicked_before = _uniforms(block, seed, "clicked before") < 0.5
    conversion_id = scramble(_row_numbers(block), salt_of(f"{seed} conversion_id"))
    numbers = {
        "timestamp": block.timestamp,
        "uid": _users(block),
        "conversion": block.label,
        "conversion_timestamp": np.where(converted, block.timestamp + delay, -1),
        "conversion_id": np.where(converted, conversion_id.astype(np.int64), -1),
        "attribution": known & (_uniforms(block, seed, "attribution") < 0.9),
        "click": clicked,
        "click_pos": np.where(known, place, -1),
        "click_nb": np.where(known, num_clicks, -1),
        "time_since_last_click": np.where(clicked_before, since, -1),
    }
    names = {name: value_words(name, codes) for name, codes in block.columns.items()}
    texts = {name: integer_text(column) for name, column in (numbers | names).items()}
    cost = decimal_text(1 + _lognormals(block, seed, "cost", 3, 1.2, 10**6), 6)
    return texts | {
        "cost": cost,
        "cpo": decimal_text(_lognormals(block, seed, "cpo", 9.7, 0.7, 10**6), 6),
    }


def _search_fields(block: SynthBlock, seed: int) -> dict[str, TextMatrix]:
    sold = block.label == 1
    none = constant_text("-1", len(block))
    price = _lognormals(block, seed, "product_price", 8.2, 1.3, 10**8)
    pieces = 1 + (-0.5 * np.log(_uniforms(block, seed, "pieces"))).astype(np.int64)
    delay = _lognormals(block, seed, "delay", 8.5, 2.8, 30 * _DAY)
    fields = {
        "Sale": integer_text(block.label),
        "SalesAmountInEuro": choose_text(sold, decimal_text(price * pieces, 2), none),
        "time_delay_for_conversion": integer_text(np.where(sold, delay, -1)),
        "click_timestamp": integer_text(block.timestamp),
        "product_price": decimal_text(np.where(sold, price, 0), 2),
        "user_id": _long_hex("user_id", _users(block)),
    }
    for column, codes in block.columns.items():
        if column == "nb_clicks_1week":
            # Code 0 is missing, shown as -1; code 1 is a count of 0.
            fields[column] = integer_text(codes - 1)
        else:
            fields[column] = choose_text(codes > 0, _long_hex(column, codes), none)
    return fields


def _taobao_fields(block: SynthBlock, seed: int) -> dict[str, TextMatrix]:
    del seed
    places = [constant_text(name, len(block)) for name in ("430548_1007", "430539_1007")]
    fields = {name: taobao_numbers(name, codes) for name, codes in block.columns.items()}
    return fields | {
        "user": integer_text(_users(block)),
        "time_stamp": integer_text(block.timestamp),
        "pid": choose_text(block.columns["pid"] == 1, *places),
        "nonclk": integer_text(1 - block.label.astype(np.int64)),
        "clk": integer_text(block.label),
    }


def _users(block: SynthBlock) -> CodeArray:
    if block.user is None:
        raise ConfigError("users=None, but this layout has a user column; give the shape users.")
    return block.user


def _long_hex(column: str, codes: CodeArray) -> TextMatrix:
    first = value_words(column, codes)
    words = [first, *(scramble(first, number) for number in (1, 2, 3))]
    return np.hstack([hex_text(word, upper=True) for word in words])


def _row_numbers(block: SynthBlock) -> npt.NDArray[np.int64]:
    return np.arange(block.first_row, block.first_row + len(block))


def _uniforms(block: SynthBlock, seed: int, column: str) -> FloatArray:
    return uniforms(scramble(_row_numbers(block), salt_of(f"{seed} {column}")))


def _lognormals(
    block: SynthBlock, seed: int, column: str, mean_log: float, stddev_log: float, most: int
) -> npt.NDArray[np.int64]:
    from scipy.special import ndtri

    drawn = np.exp(mean_log + stddev_log * np.asarray(ndtri(_uniforms(block, seed, column))))
    return np.minimum(drawn, most).astype(np.int64)


_TEXTS: Mapping[str, LogText] = MappingProxyType(
    {
        "display": LogText(
            layout=DISPLAY,
            fields=_display_fields,
            names=frozenset(name for name in DISPLAY.columns if name.startswith("cat")),
        ),
        "attribution": LogText(
            layout=ATTRIBUTION, fields=_attribution_fields, reals=frozenset({"cost", "cpo"})
        ),
        "search": LogText(
            layout=SEARCH,
            fields=_search_fields,
            names=frozenset(SEARCH.columns[6:]),
            reals=frozenset({"SalesAmountInEuro", "product_price"}),
        ),
        "taobao": LogText(
            layout=TAOBAO_LAYOUT,
            fields=_taobao_fields,
            names=frozenset({"pid"}),
            reals=frozenset({"price"}),
        ),
    }
)


_IMPRESSION_COLUMNS = ("user", "time_stamp", "adgroup_id", "pid", "nonclk", "clk")


def write_log(
    shape: SynthShape,
    path: Path,
    *,
    num_rows: int,
    seed: int,
    num_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Writes one synthetic log, in a stream and whole or not at all.

    The rows are those of `generate_blocks` with the same shape, length and seed, which
    also gives their true probabilities. Taobao's three tables are written joined; see
    `write_taobao_tables` for the public log's own form.

    Args:
      shape: One of DISPLAY, ATTRIBUTION, SEARCH, TAOBAO, or a variant with its name.
      path: Where to; `.gz`, `.zst` and `.parquet` are understood. Replaced if there.
      num_rows: Length of the log.
      seed: Fixes the log.
      num_threads: Number of threads; by default one for each core, up to 8.
      progress: Function that is told how many rows are made.
    """
    text = text_of(shape)
    blocks = generate_blocks(
        shape, num_rows=num_rows, seed=seed, rows_per_block=CHUNK_ROWS, num_threads=num_threads
    )
    form = TableForm(
        columns=text.layout.columns,
        separator=text.layout.separator,
        has_header=text.layout.has_header,
        missing=text.layout.missing,
        names=text.names,
        reals=text.reals,
    )
    lines = functools.partial(text.lines, seed=seed)
    told = blocks if progress is None else _telling(blocks, progress)
    write_table(path, form, map_in_order(lines, told, num_threads))


def write_taobao_tables(
    folder: Path, *, num_rows: int, seed: int, shape: SynthShape = TAOBAO
) -> None:
    """Writes raw_sample.csv, ad_feature.csv and user_profile.csv, as the public log has them.

    Each file is written whole or not at all. Only ads and users that occur have a row.

    Args:
      folder: Where to; must exist.
      num_rows: Impressions in raw_sample.csv.
      seed: Fixes the log.
      shape: TAOBAO, or a variant of it.
    """
    if shape.name != TAOBAO.name or shape.users is None:
        raise ConfigError(f"shape {shape.name!r} has no tables of ads and users; use write_log().")
    world = world_of(shape)
    ads = np.zeros(_num_codes(shape, "adgroup_id"), np.bool_)
    users = np.zeros(shape.users.law(num_rows).num_values + 1, np.bool_)
    pieces = _impressions(shape, num_rows, seed, ads, users)
    form = TableForm(columns=_IMPRESSION_COLUMNS, names=frozenset({"pid"}))
    write_table(folder / "raw_sample.csv", form, pieces)
    for name, key, entity, seen in (
        ("ad_feature.csv", "adgroup_id", "adgroup_id", ads),
        ("user_profile.csv", "userid", USER, users),
    ):
        columns = tuple(f.name for f in shape.features if _root(shape, f.given_by) == entity)
        entity_form = TableForm(columns=(key, *columns))
        write_table(folder / name, entity_form, _entity_lines(world, entity, columns, seen))


def _impressions(
    shape: SynthShape,
    num_rows: int,
    seed: int,
    ads: npt.NDArray[np.bool_],
    users: npt.NDArray[np.bool_],
) -> Iterator[bytes]:
    text = text_of(shape)
    for block in generate_blocks(shape, num_rows=num_rows, seed=seed, rows_per_block=4096):
        ads[block.columns["adgroup_id"]] = True
        users[block.user] = True
        fields = text.fields(block, seed)
        yield join_lines([fields[name] for name in _IMPRESSION_COLUMNS], TAOBAO_LAYOUT.separator)


def _entity_lines(
    world: World, entity: str, columns: tuple[str, ...], seen: npt.NDArray[np.bool_]
) -> Iterator[bytes]:
    entities = np.flatnonzero(seen).astype(np.int32)
    for start in range(0, len(entities), 4096):
        codes: dict[str, CodeArray] = {entity: entities[start : start + 4096]}
        for feature in world.shape.features:
            if feature.name in columns:
                words = entity_words(feature, codes[feature.given_by or entity])
                codes[feature.name] = world.tables[feature.name].codes(words)
        fields = [taobao_numbers(name, codes[name]) for name in columns]
        yield join_lines([integer_text(codes[entity]), *fields], TAOBAO_LAYOUT.separator)


def _root(shape: SynthShape, name: str | None) -> str | None:
    givers = {feature.name: feature.given_by for feature in shape.features}
    while name is not None and givers.get(name) is not None:
        name = givers[name]
    return name


def _num_codes(shape: SynthShape, name: str) -> int:
    return next(f.law.num_values for f in shape.features if f.name == name) + 1


def _telling(blocks: Iterator[SynthBlock], progress: Callable[[int], None]) -> Iterator[SynthBlock]:
    for block in blocks:
        yield block
        progress(block.first_row + block.label.size)
