"""The options of a command, as one frozen dataclass that several commands can share.

A command may also take settings of the library as options: those of a training method, say. They
are made from the settings classes themselves when the command is called or asked for help, so that
no other command waits for the import. Help groups options under headings, those first that the
chosen method takes, and old names of options go on working without being shown.
"""

import dataclasses
import functools
import importlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tulle.errors import TulleError

if TYPE_CHECKING:
    from tulle.privacy.options import Option

DATA, PRIVACY, LEDGER, OUTPUT = "Data", "Privacy", "Ledger", "Output"
"""Headings of the help that most commands have."""
SETTINGS = "tulle.settings"
"""Key under which a command's context holds settings of the library given as options."""
_CONTEXT = "context"


def option(
    heading: str,
    text: str,
    *names: str,
    least: float | None = None,
    most: float | None = None,
    metavar: str | None = None,
    words: Callable[[], Iterable[str]] | None = None,
) -> Any:
    """An option that stands under a heading of the help.

    Args:
      heading: The heading.
      text: What the help says of the option.
      *names: Its names, where they do not follow from the field or are flags.
      least: Least number that it takes.
      most: Largest number that it takes.
      metavar: What stands for its value in the help.
      words: Gives the words that a shell completes its value by, if there are few.
    """
    return typer.Option(
        *names,
        help=text,
        rich_help_panel=heading,
        min=least,
        max=most,
        metavar=metavar,
        autocompletion=None if words is None else completing(words),
    )


def completing(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function that shells ask how a word goes on; `words` is called only then."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete)]

    return complete


def layout_words() -> list[str]:
    """Names of the public logs whose columns are known."""
    from tulle.data.formats.public import LAYOUTS

    return list(LAYOUTS)


def method_words() -> list[str]:
    """Words of the training methods."""
    from tulle.train.methods.catalogue import METHODS

    return [method.kind for method in METHODS]


def mechanism_words() -> list[str]:
    """Words of the mechanisms for labels."""
    from tulle.labels.mechanisms.catalogue import LABEL_MECHANISMS

    return list(LABEL_MECHANISMS)


AsJson = Annotated[bool, option(OUTPUT, "Print JSON.", "--json")]
Quiet = Annotated[bool, option(OUTPUT, "Show no progress on stderr.", "--quiet")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """Who pays, for data of which time."""

    ledger: Annotated[
        Path | None, option(LEDGER, "Ledger that is charged before the first draw.")
    ] = None
    purpose: Annotated[
        str | None,
        option(
            LEDGER,
            "Name of the purpose in the ledger [default: the name of the command, e.g. measure].",
        ),
    ] = None
    at: Annotated[
        str | None,
        option(
            LEDGER,
            "Date (in the time zone of the budget) or time of the data. Needed if a budget renews.",
        ),
    ] = None
    until: Annotated[str | None, option(LEDGER, "Last date or time of the data.")] = None
    again: Annotated[
        bool,
        option(
            LEDGER,
            "Charge the ledger for a second release of the same data, with new noise.",
            "--again",
        ),
    ] = False

    def charge(self) -> dict[str, Any]:
        """The keywords by which a release is charged."""
        names = ("ledger", "purpose", "at", "until", "again")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How results are printed."""

    as_json: AsJson = False
    quiet: Quiet = False


def json_schema_option(
    settings: str,
    title: str,
    text: str = "Print the JSON Schema of the settings file, by which editors complete it, and "
    "stop.",
) -> Any:
    """The option `--json-schema`, which prints what editors check settings by.

    Args:
      settings: Module and name of the settings class, imported only if somebody asks.
      title: Title of the schema.
      text: What the help says.
    """

    def show(wanted: bool) -> None:
        if not wanted:
            return
        from tulle.privacy.codec import json_schema

        module, _, name = settings.partition(":")
        cls = getattr(importlib.import_module(module), name)
        typer.echo(json.dumps(json_schema(cls, title=title), indent=2))
        raise typer.Exit

    return typer.Option("--json-schema", help=text, is_eager=True, callback=show)


def taking_options(run: Callable[..., None]) -> Callable[..., None]:
    """A function that typer makes a command of: one option for each field.

    Args:
      run: Does the work; its docstring is the help of the command. Its argument is a dataclass
        whose fields are annotated with options. If it takes a second one, that is a mapping of all
        options that are no field and were given.
    """
    first, *others = inspect.signature(run).parameters.values()
    options, takes_settings = first.annotation, bool(others)
    fields = dataclasses.fields(options)

    def command(*_: object, **given: Any) -> None:
        context = given.pop(_CONTEXT, None)
        chosen = options(**given)
        if context is None:
            run(chosen)
            return
        # None and False are options that nobody gave; 0 equals False, and was given.
        settings = context.meta.get(SETTINGS, {}).items()
        run(chosen, {name: to for name, to in settings if to is not None and to is not False})

    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=field.type,
        )
        for field in fields
    ]
    if takes_settings:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(_CONTEXT, keyword, annotation=typer.Context))
    # typer reads the options off the signature and the annotations.
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {part.name: part.annotation for part in parameters}
    command.__doc__, command.__name__ = run.__doc__, run.__name__
    return command


def keywords(options: Any, *without: str) -> dict[str, Any]:
    """The options that were given, for a verb whose parameters have the same names.

    Args:
      options: Options of a command.
      *without: Options that the verb does not have, or calls something else.
    """
    values = ((field.name, getattr(options, field.name)) for field in dataclasses.fields(options))
    return {name: value for name, value in values if value is not None and name not in without}


def parameters_of(
    options: Mapping[str, "Option"], panels: Mapping[str, str], *, with_help: bool
) -> list[Any]:
    """Settings of the library as parameters of a command.

    Args:
      options: The options by name.
      panels: Heading of each option by the first field of its path.
      with_help: Whether their texts and defaults are looked up, which nobody else waits for.
    """

    def command(**_: Any) -> None: ...

    found = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if option.value_type is bool else None,
            annotation=Annotated[
                bool if option.value_type is bool else option.value_type | None,
                typer.Option(
                    *((f"--{option.name.replace('_', '-')}",) if option.value_type is bool else ()),
                    help=_help(option) if with_help else None,
                    metavar="|".join(option.choices) or ("NAME,..." if option.is_list else None),
                    autocompletion=completing(functools.partial(tuple, option.choices)),
                    rich_help_panel=panels[option.path[0]],
                ),
            ],
        )
        for option in options.values()
    ]
    command.__dict__["__signature__"] = inspect.Signature(found)
    command.__annotations__ = {part.name: part.annotation for part in found}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    made: Any = typer.main.get_command(app)
    return [parameter for parameter in made.params if parameter.name in options]


def _help(option: "Option") -> str:
    """What an option means, in one paragraph, with its default."""
    text = " ".join(option.help.split())
    if option.default is None or option.default is False:
        return text
    default = f"{option.default:g}" if isinstance(option.default, float) else option.default
    return f"{text.removesuffix('.')} [default: {default}]."


def _default(field: "dataclasses.Field[Any]") -> object:
    is_required = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if is_required else field.default


_FIRST = (DATA, PRIVACY)
_LAST = (LEDGER, OUTPUT, "Options")
_OLD_NAMES = {"out": "output"}
"""Names of options that had another one, which goes on working and is not shown."""
_WORDS = "tulle.words"
_PANELS = {
    "unit": "Privacy",
    "clip": DATA,
    "classes": DATA,
    "allow_constant": "Privacy",
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
        return [*self.params, *_method_parameters(with_help=True)]

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, and those that the methods have."""
        words = ctx.meta.get(_WORDS, ctx.help_option_names)
        with_help = not set(words).isdisjoint(ctx.help_option_names)
        return [*super().get_params(ctx), *_method_parameters(with_help=with_help)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remembers the words, since help is asked for before options are read."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Hands the settings of methods over beside the options of the command itself."""
        names = [param.name for param in _method_parameters(with_help=False)]
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
def _method_parameters(*, with_help: bool) -> tuple[Any, ...]:
    """The options of all training methods; where several have one, as the first says it."""
    from tulle.privacy.options import options_of
    from tulle.train.methods.catalogue import METHODS

    found: dict[str, Any] = {}
    for method in METHODS:
        for name, option in options_of(method).items():
            found.setdefault(name, option)
    # Said by the command itself, since it may be the name of a column.
    del found["unit"]
    return tuple(parameters_of(found, _PANELS, with_help=with_help))


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
