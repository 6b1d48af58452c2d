"""Writes synthetic click and conversion logs in the formats of the public logs."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tulle.data.formats.taobao import TAOBAO as TAOBAO_LAYOUT
from tulle.data.synth.clicks import CHUNK_ROWS, SynthBlock, World, generate_blocks, world_of
from tulle.data.synth.layouts import taobao_numbers, text_of
from tulle.data.synth.shape import USER, SynthShape
from tulle.data.synth.shapes import TAOBAO
from tulle.data.synth.table_files import TableForm, write_table
from tulle.data.synth.text import integer_text, join_lines
from tulle.data.synth.truth import entity_words
from tulle.data.synth.zipf import CodeArray
from tulle.data.threads import map_in_order
from tulle.errors import ConfigError

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
