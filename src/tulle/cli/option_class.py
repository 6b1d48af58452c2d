"""The options of a command as one frozen dataclass, which several commands can share.

A command may also take settings of the library as options: those of a training method, say. They
are made from the settings classes themselves when the command is called or asked for help, so that
no other command waits for the import.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from tulle.privacy.options import Option

_Options = TypeVar("_Options")
SETTINGS = "tulle.settings"
"""Key under which a command's context holds settings of the library given as options."""
_CONTEXT = "context"


def command_taking(options: type[_Options], run: Callable[..., None]) -> Callable[..., None]:
    """A function that typer makes a command of: one option for each field.

    Args:
      options: A dataclass whose fields are annotated with `typer.Option`.
      run: Does the work; its docstring is the help of the command. If it takes a second argument,
        that is a mapping of all options that are no field and were given.
    """
    fields = dataclasses.fields(options)  # type: ignore[arg-type]
    takes_settings = len(inspect.signature(run).parameters) > 1

    def command(*_: object, **given: Any) -> None:
        context = given.pop(_CONTEXT, None)
        chosen = options(**given)
        if context is None:
            run(chosen)
            return
        settings = context.meta.get(SETTINGS, {})
        run(chosen, {name: value for name, value in settings.items() if value not in (None, False)})

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


def parameters_of(options: Mapping[str, "Option"], panels: Mapping[str, str]) -> list[Any]:
    """Settings of the library as parameters of a command.

    Args:
      options: The options by name.
      panels: Heading of each option by the first field of its path.
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
                    help=_help(option),
                    metavar="|".join(option.choices) or None,
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
    if option.default is None:
        return text
    default = f"{option.default:g}" if isinstance(option.default, float) else option.default
    return f"{text.removesuffix('.')} [default: {default}]."


def _default(field: "dataclasses.Field[Any]") -> object:
    is_required = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if is_required else field.default
