"""Bounds on what one unit adds, the last thing before totals.

Every step works on whole numbers >= 0 that follow from the unit's own rows and the salt alone:

1. `units`: rows of a unit and slice are added up.
2. `capped`: what is above the bound of a slice is scaled down to it.
3. `chosen`: of a unit with too many slices, those that come first by keyed md5 are kept.
4. `scaled`: what is above the bound of a unit is scaled down to it.

Scaling is F(x) = floor(x * cap / total), capped at cap, at the running sums of the parts: a part
gets the difference of F at its two ends. F never falls, so no part is negative; the differences
telescope, so they add up to F(total) = cap. In 4 a part gets no more than it had, so the bound of
a slice still holds, and slices are only ever taken away after 3. Hence for every unit: at most
`max_slices_per_unit` slices, in each at most `max_steps_per_slice`, in all at most
`max_steps_per_unit`.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)

import dataclasses

from tulle.measure.engines.engine import Step
from tulle.measure.engines.log_tables import value_text
from tulle.measure.engines.sql_text import column_list, equal_columns, keyed_draw
from tulle.measure.slice_jobs import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounding:
    """Steps that bound the rows of one job."""

    prefix: str
    units: tuple[str, ...]
    slices: tuple[str, ...]
    amounts: tuple[str, ...]
    bounds: Bounds
    steps_per_contribution: int

    def steps(self) -> list[Step]:
        """The last one has a row for each unit and slice with anything left."""
        bounds, steps = self.bounds, self.steps_per_contribution
        made = [self._added_up(), self._capped(bounds.max_steps_per_slice(steps))]
        if bounds.max_slices_per_unit is not None and self.slices:
            made += self._chosen(made[-1].name, bounds.max_slices_per_unit)
        if bounds.max_per_unit is not None:
            made += self._scaled(made[-1].name, bounds.max_steps_per_unit(steps))
        return made

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self.units, *self.slices, *self.amounts)

    @property
    def _order(self) -> str:
        texts = [value_text(f"b.{name}") for name in self.slices]
        draw = keyed_draw([*(f"b.{name}" for name in self.units), *texts])
        return column_list((draw, *(f"b.{name}" for name in self.slices)))

    def _added_up(self) -> Step:
        keys = column_list((*self.units, *self.slices))
        sums = ", ".join(f"CAST(SUM({name} * num) AS BIGINT) AS {name}" for name in self.amounts)
        some = " + ".join(f"SUM({name} * num)" for name in self.amounts)
        return Step(
            f"{self.prefix}_units",
            f"SELECT {keys}, {sums} FROM {self.prefix}_rows GROUP BY {keys} HAVING {some} > 0",
        )

    def _capped(self, cap: int) -> Step:
        total = " + ".join(self.amounts)
        parts = [
            f"{_part(self.amounts, index, before='0', total=total, cap=cap)} AS {name}"
            for index, name in enumerate(self.amounts)
        ]
        if len(self.amounts) == 1:
            parts = [f"LEAST({total}, {cap}) AS {self.amounts[0]}"]
        keys = column_list((*self.units, *self.slices))
        sql = f"SELECT {keys}, {', '.join(parts)} FROM {self.prefix}_units"
        return Step(f"{self.prefix}_capped", sql)

    def _chosen(self, source: str, max_slices: int) -> list[Step]:
        units = column_list(self.units)
        columns = column_list(self._columns)
        crowded = f"SELECT {units} FROM {source} GROUP BY {units} HAVING COUNT(*) > {max_slices}"
        ranked = (
            f"SELECT {column_list(self._columns, 'b')}, ROW_NUMBER() OVER (PARTITION BY "
            f"{column_list(self.units, 'b')} ORDER BY {self._order}) AS place "
            f"FROM {source} b JOIN {self.prefix}_crowded o ON {equal_columns('o', 'b', self.units)}"
        )
        few = self._others(source, f"{self.prefix}_crowded")
        chosen = (
            f"{few} UNION ALL SELECT {columns} FROM ({ranked}) AS r WHERE place <= {max_slices}"
        )
        return [Step(f"{self.prefix}_crowded", crowded), Step(f"{self.prefix}_chosen", chosen)]

    def _scaled(self, source: str, cap: int) -> list[Step]:
        units = column_list(self.units)
        total = " + ".join(self.amounts)
        above = (
            f"SELECT {units}, SUM({total}) AS unit_total FROM {source} "
            f"GROUP BY {units} HAVING SUM({total}) > {cap}"
        )
        slice_total = " + ".join(f"b.{name}" for name in self.amounts)
        running = (
            f"SELECT {column_list(self._columns, 'b')}, o.unit_total, SUM({slice_total}) OVER "
            f"(PARTITION BY {column_list(self.units, 'b')} ORDER BY {self._order} "
            f"ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - ({slice_total}) AS before "
            f"FROM {source} b JOIN {self.prefix}_above o ON {equal_columns('o', 'b', self.units)}"
        )
        parts = []
        for index, name in enumerate(self.amounts):
            part = _part(self.amounts, index, before="before", total="unit_total", cap=cap)
            parts.append(f"LEAST({name}, {part}) AS {name}")
        keys = column_list((*self.units, *self.slices))
        scaled = f"SELECT {keys}, {', '.join(parts)} FROM ({running}) AS running"
        within = self._others(source, f"{self.prefix}_above")
        return [
            Step(f"{self.prefix}_above", above),
            Step(f"{self.prefix}_scaled", f"{within} UNION ALL {scaled}"),
        ]

    def _others(self, source: str, listed: str) -> str:
        same = equal_columns("o", "b", self.units)
        return (
            f"SELECT {column_list(self._columns, 'b')} FROM {source} b "
            f"WHERE NOT EXISTS (SELECT 1 FROM {listed} o WHERE {same})"
        )


def _part(amounts: tuple[str, ...], index: int, *, before: str, total: str, cap: int) -> str:
    start = " + ".join([before, *amounts[:index]])
    return f"{_share(f'{start} + {amounts[index]}', total, cap)} - {_share(start, total, cap)}"


def _share(running: str, total: str, cap: int) -> str:
    # Products and quotients of floats never fall as `running` grows, so neither does this.
    scaled = f"CAST({running} AS DOUBLE) * CAST({cap} AS DOUBLE) / CAST({total} AS DOUBLE)"
    return (
        f"CAST(CASE WHEN {total} <= {cap} THEN {running} WHEN {running} >= {total} THEN {cap} "
        f"ELSE LEAST({cap}, FLOOR({scaled})) END AS BIGINT)"
    )
