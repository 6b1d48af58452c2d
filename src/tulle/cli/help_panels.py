"""Help whose options stand in groups, as plain text.

typer draws `rich_help_panel` with boxes, for which it loads a library on every `--help` and reads
"[default: 40]" as markup. Here the same groups are headings.
"""

import functools
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from tulle.cli.option_class import SETTINGS, parameters_of
from tulle.errors import TulleError

_FIRST = ("Data", "Privacy")
_LAST = ("Ledger", "Output", "Options")
_OLD_NAMES = {"out": "output"}
"""Names of options that had another one, which goes on working and is not shown."""
_WORDS = "tulle.words"
_PANELS = {
    "unit": "Privacy",
    "split": "Privacy",
    "accounting": "Privacy",
    "model": "Model",
    "label_phase": "Steps on randomized labels",
    "private_phase": "Private steps",
    "phase": "Steps without noise",
    "projection": "Projection of label gradients",
}
"""Heading of each option of a method, by the first field of its path."""


class PanelledCommand(TyperCommand):
    """A command whose help shows each option under the heading that it names."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments, then options by their headings."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(self.heading_of(param, ctx), []).append(record)
        for heading in sorted(groups, key=_rank):
            with formatter.section(heading):
                formatter.write_dl(groups[heading])

    def heading_of(self, param: Any, ctx: Any) -> str:
        """The heading that a parameter stands under."""
        del ctx
        if param.param_type_name == "argument":
            return "Arguments"
        return getattr(param, "rich_help_panel", None) or "Options"


class TrainingCommand(PanelledCommand):
    """A command that takes the settings of training methods, those of the chosen one first."""

    @property
    def all_params(self) -> list[Any]:
        """The parameters of the command, and those that the methods have."""
        return [*self.params, *_method_parameters()]

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, and those that the methods have."""
        return [*super().get_params(ctx), *_method_parameters()]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remembers the words, since help is asked for before options are read."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Hands the settings of methods over beside the options of the command itself."""
        names = [param.name for param in _method_parameters()]
        ctx.meta[SETTINGS] = {name: ctx.params.pop(name, None) for name in names}
        return super().invoke(ctx)

    def heading_of(self, param: Any, ctx: Any) -> str:
        """The heading of an option, or that of all options that the chosen method lacks."""
        from tulle.privacy.options import options_of
        from tulle.train.methods.catalogue import METHODS, method_of

        named = {name for method in METHODS for name in options_of(method)}
        word = _chosen_word(ctx.meta.get(_WORDS, []), METHODS[0].kind)
        try:
            chosen = method_of(word)
        except TulleError:
            chosen = METHODS[0]
        if param.name not in named or param.name in options_of(chosen):
            return super().heading_of(param, ctx)
        return f"Not for {chosen.kind}; --method METHOD --help shows what another method takes"


def present_name(name: str) -> str:
    """The name of an option now, for one that it had before."""
    return _OLD_NAMES.get(name, name)


@functools.cache
def _method_parameters() -> tuple[Any, ...]:
    """The options of all training methods; where several have one, as the first says it."""
    from tulle.privacy.options import options_of
    from tulle.train.methods.catalogue import METHODS

    found: dict[str, Any] = {}
    for method in METHODS:
        for name, option in options_of(method).items():
            found.setdefault(name, option)
    # Said by the command itself, since it may be the name of a column.
    del found["unit"]
    return tuple(parameters_of(found, _PANELS))


def _chosen_word(words: Sequence[str], default: str) -> str:
    """The value of --method among the words of a command."""
    for place, word in enumerate(words):
        if word == "--method" and place + 1 < len(words):
            return words[place + 1]
        if word.startswith("--method="):
            return word.partition("=")[2]
    return default


def _rank(heading: str) -> int:
    order = ("Arguments", *_FIRST, None, *_LAST)
    if heading.startswith("Not for"):
        return len(order)
    return order.index(heading if heading in order else None)
