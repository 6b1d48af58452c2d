"""Kinds and sizes of the models that steps train, and the embedding tables that follow from them.

A dataset that was prepared with shared tables gives all features of a role ids in one space; with
separate tables each feature has a space of its own. A model either keeps these spaces
(`AS_PREPARED`) or gives every feature rows of its own (`PER_FEATURE`: of a shared space, each
feature gets a full copy). Tables of the same dimension lie one below the other in one tensor, so
that a role needs one gather in the usual case.

A plan needs the settings and no PyTorch, so nothing here imports it; `models.building` builds.
"""

import abc
import dataclasses
import enum
from collections.abc import Sequence
from typing import ClassVar, Literal

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.fields import check_choice, check_count, check_finite

TOWERS = frozenset({"public", "sensitive", "common"})
"""What the name of every parameter begins with, followed by a dot."""

FOURTH_ROOT: Literal["fourth root"] = "fourth root"
EmbeddingDim = int | Literal["fourth root"]
"""A number, or int(2 V^0.25) for a table of V rows (the hybrid paper, Training Details)."""

# Far above any model of use. A slip of the keyboard is refused by name, rather than by running out
# of memory after the data were read.
_LARGEST_DIM = 1 << 16
_MOST_UNITS = 1 << 20


class TableSharing(enum.Enum):
    """Which features share embedding rows."""

    AS_PREPARED = "as prepared"
    """Features share an embedding table if they share an id space in the prepared dataset."""
    PER_FEATURE = "per feature"
    """Every feature has a table of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableLayout:
    """One tensor of embeddings: its shape, and which ids its rows stand for."""

    tensor: str
    """Name of the parameter."""
    columns: tuple[int, ...]
    """Columns among the ids of the role that are looked up here."""
    first_rows: tuple[int, ...]
    """Row of id 0 of each of these columns."""
    num_rows: int
    dim: int
    may_repeat: bool
    """True if two columns share rows, so that a row of the data can read a row twice."""


TowerLayout = dict[str, tuple[TableLayout, ...]]
"""The tables of each role."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(abc.ABC):
    """Kind and sizes of a model. Every field is public information."""

    kind: ClassVar[str]
    """The word for the model in settings files."""
    word: ClassVar[str]
    """The word for the model on the command line."""

    @abc.abstractmethod
    def layout(self, features: Sequence[PreparedFeature]) -> TowerLayout:
        """Which tables the model has for these features, and what their rows stand for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLP(ModelSettings):
    """Sizes of a multilayer perceptron over embeddings. Every field is public information."""

    kind: ClassVar[str] = "mlp"
    word: ClassVar[str] = "mlp"

    embedding_dim: EmbeddingDim = 32
    """A number, or "fourth root" for int(2 V^0.25) by table of V rows."""
    tables: TableSharing = TableSharing.AS_PREPARED
    """Which features share embedding rows."""
    public_hidden: tuple[int, ...] = (256,)
    """Sizes of the public tower's layers."""
    sensitive_hidden: tuple[int, ...] = ()
    """Sizes of the sensitive tower's layers."""
    common_hidden: tuple[int, ...] = (256, 256)
    """Sizes of the common tower's layers, without the output."""
    initial_stddev: float = 0.01
    """Standard deviation of the initial embeddings."""

    def __post_init__(self) -> None:
        _check_embedding_dim(self.embedding_dim)
        object.__setattr__(self, "tables", _sharing(self.tables))
        for name in ("public_hidden", "sensitive_hidden", "common_hidden"):
            object.__setattr__(self, name, _sizes(name, getattr(self, name)))
        _check_stddev(self.initial_stddev)

    @classmethod
    def semi_sensitive_search(cls) -> "MLP":
        """The model of the semi-sensitive paper on the Sponsored Search log (appendix A)."""
        return cls()

    @classmethod
    def semi_sensitive_display(cls) -> "MLP":
        """The model of the semi-sensitive paper on the Display log (appendix A)."""
        return cls(public_hidden=(598,), common_hidden=(598, 598))

    @classmethod
    def hybrid_display(cls) -> "MLP":
        """The model of the hybrid paper on the Display log, with numbers as buckets."""
        return cls(
            embedding_dim=FOURTH_ROOT,
            tables=TableSharing.PER_FEATURE,
            public_hidden=(),
            common_hidden=(598, 598, 598, 598),
        )

    @classmethod
    def hybrid_attribution(cls) -> "MLP":
        """The model of the hybrid paper on the Attribution log, with numbers as buckets."""
        return cls(
            embedding_dim=8,
            tables=TableSharing.PER_FEATURE,
            public_hidden=(),
            common_hidden=(128, 64),
        )

    def layout(self, features: Sequence[PreparedFeature]) -> TowerLayout:
        """Which tables the model has for these features, and what their rows stand for."""
        return tower_layout(features, dim=self.embedding_dim, sharing=self.tables)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorizationMachine(ModelSettings):
    """Sizes of a factorization machine. Every field is public information."""

    kind: ClassVar[str] = "factorization machine"
    word: ClassVar[str] = "fm"

    factor_dim: int = 32
    """Dimension of each embedding, without the linear term."""
    tables: TableSharing = TableSharing.AS_PREPARED
    """Which features share rows."""
    initial_stddev: float = 0.01
    """Standard deviation of initial factors and linear terms (the semi-sensitive paper, appendix
    A)."""

    def __post_init__(self) -> None:
        check_count("factor_dim", self.factor_dim)
        object.__setattr__(self, "tables", _sharing(self.tables))
        _check_stddev(self.initial_stddev)

    def layout(self, features: Sequence[PreparedFeature]) -> TowerLayout:
        """Which tables the model has for these features, and what their rows stand for."""
        return tower_layout(features, dim=1 + self.factor_dim, sharing=self.tables)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogisticRegression(ModelSettings):
    """Settings of a logistic regression. Every field is public information."""

    kind: ClassVar[str] = "logistic regression"
    word: ClassVar[str] = "lr"

    tables: TableSharing = TableSharing.AS_PREPARED
    """Which features share weights."""
    initial_stddev: float = 0.0
    """Standard deviation of the initial weights; zero is as good as any, the loss is convex."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", _sharing(self.tables))
        _check_stddev(self.initial_stddev, may_be_zero=True)

    def layout(self, features: Sequence[PreparedFeature]) -> TowerLayout:
        """Which tables the model has for these features, and what their rows stand for."""
        return tower_layout(features, dim=1, sharing=self.tables)


AnyModel = MLP | FactorizationMachine | LogisticRegression
"""All models of towers, as one type for settings files."""


def tower_layout(
    features: Sequence[PreparedFeature], *, dim: EmbeddingDim, sharing: TableSharing
) -> TowerLayout:
    """The tables of a model. The model, its export and its way back are all made from this.

    Args:
      features: Features of all roles, in the order of the dataset.
      dim: Dimension of each embedding, or the rule for it.
      sharing: Which features share rows.
    """
    return {
        role: _role_layout(role, [f for f in features if f.role == role], dim, sharing)
        for role in ("public", "sensitive")
    }


@dataclasses.dataclass(eq=False)
class _Space:
    """Ids that mean the same row, whichever of some columns they are in."""

    columns: list[int] = dataclasses.field(default_factory=list)
    num_rows: int = 0


def _role_layout(
    role: str, of_role: Sequence[PreparedFeature], dim: EmbeddingDim, sharing: TableSharing
) -> tuple[TableLayout, ...]:
    spaces: dict[str | int, _Space] = {}
    for column, feature in enumerate(of_role):
        key = feature.table if sharing is TableSharing.AS_PREPARED else column
        space = spaces.setdefault(key, _Space())
        space.columns.append(column)
        space.num_rows = max(space.num_rows, feature.num_ids)
    by_dim: dict[int, list[_Space]] = {}
    for space in spaces.values():
        space_dim = int(2 * space.num_rows**0.25) if isinstance(dim, str) else dim
        by_dim.setdefault(space_dim, []).append(space)
    return tuple(
        _stacked(f"{role}.table.{index}", group, group_dim)
        for index, (group_dim, group) in enumerate(by_dim.items())
    )


def _stacked(name: str, spaces: Sequence[_Space], dim: int) -> TableLayout:
    first_rows: dict[int, int] = {}
    num_rows = 0
    for space in spaces:
        first_rows |= dict.fromkeys(space.columns, num_rows)
        num_rows += space.num_rows
    columns = tuple(sorted(first_rows))
    return TableLayout(
        tensor=name,
        columns=columns,
        first_rows=tuple(first_rows[column] for column in columns),
        num_rows=num_rows,
        dim=dim,
        may_repeat=any(len(space.columns) > 1 for space in spaces),
    )


def _check_embedding_dim(value: object) -> None:
    if value == FOURTH_ROOT and isinstance(value, str):
        return
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= _LARGEST_DIM:  # type: ignore[operator]
        raise ConfigError(
            f"embedding_dim={value!r} must be a whole number from 1 to {_LARGEST_DIM}, or "
            f"{FOURTH_ROOT!r} for int(2 V^0.25) by table."
        )


def _sizes(name: str, value: object) -> tuple[int, ...]:
    """Returns sizes of layers, possibly none."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{name}={value!r} must be a list of layer sizes, e.g. [256, 256].")
    for size in value:
        if check_count(f"a size in {name}", size) > _MOST_UNITS:
            raise ConfigError(f"a size in {name} is {size}; it must be at most {_MOST_UNITS}.")
    return tuple(value)


def _check_stddev(value: object, *, may_be_zero: bool = False) -> None:
    stddev = check_finite("initial_stddev", value)
    if stddev < 0 or (stddev == 0 and not may_be_zero):
        sign = ">=" if may_be_zero else ">"
        reason = "" if may_be_zero else "; embeddings that start at zero never leave it"
        raise ConfigError(f"initial_stddev={value!r} must be {sign} 0{reason}.")


def _sharing(value: object) -> TableSharing:
    """Returns the choice that a value, or its text in a settings file, stands for."""
    return value if isinstance(value, TableSharing) else check_choice("tables", value, TableSharing)
