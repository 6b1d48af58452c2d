"""The options of a command as one frozen dataclass, which several commands can share."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Options = TypeVar("_Options")


def command_taking(options: type[_Options], run: Callable[[_Options], None]) -> Callable[..., None]:
    """A function that typer makes a command of: one option for each field.

    Args:
      options: A dataclass whose fields are annotated with `typer.Option`.
      run: Does the work; its docstring is the help of the command.
    """
    fields = dataclasses.fields(options)  # type: ignore[arg-type]

    def command(*_: object, **given: Any) -> None:
        run(options(**given))

    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=field.type,
        )
        for field in fields
    ]
    # typer reads the options off the signature and the annotations.
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {field.name: field.type for field in fields}
    command.__doc__, command.__name__ = run.__doc__, run.__name__
    return command


def _default(field: "dataclasses.Field[Any]") -> object:
    is_required = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if is_required else field.default
