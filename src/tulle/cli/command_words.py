"""What the command line says where a message of the library speaks of Python.

The library's messages are for Python: they name classes, functions and arguments. Here each such
word has its twin among options and commands. A message that needs none stays as it is.
"""

import dataclasses
import re
from collections.abc import Collection, Sequence


@dataclasses.dataclass(frozen=True)
class _Words:
    python: str
    """A pattern."""
    command: str
    option: str | None = None
    """What a command must have for this to be its way out; None if all have it."""
    otherwise: str = ""
    """What commands without the option say."""


_WORDS = (
    _Words(r"\bSet epsilon to\b", "Set --epsilon to", "--epsilon", "Set epsilon to"),
    # Ways out that not every command has.
    _Words(
        r"have such lines counted and skipped with bad_lines=BadLines\.SKIP",
        "have such lines counted and skipped with --skip-bad-lines",
        "--skip-bad-lines",
        "drop such lines first",
    ),
    _Words(
        r"Drop such rows first, or prepare the data with drop_rows_without_unit=True",
        "Leave such rows out with --drop-rows-without-unit",
        "--drop-rows-without-unit",
        "Drop such rows first, or prepare the data with "
        "`tulle data prepare --drop-rows-without-unit`",
    ),
    _Words(
        r"say with at=… \(and until=…\) which time the data are from",
        "say with --at (and --until) which time the data are from",
        "--at",
        "this command charges no time: use a budget that does not renew",
    ),
    _Words(
        r"; make it sensitive or ignored, or allow it by name if that is meant: "
        r"allowed_public=\['([^']*)'\]",
        r"; make it sensitive or ignored, or allow it by name if that is meant: --allow-public \1",
        "--allow-public",
        "; make it sensitive or ignored",
    ),
    _Words(
        r"go on with the run in it with resume=True, or choose another output",
        "go on with the run in it with --resume, or choose another --output",
        "--resume",
        "choose another --output",
    ),
    _Words(
        r"run the same command with --resume to go on",
        "run the same command with --resume to go on",
        "--resume",
        "begin again",
    ),
    _Words(r"give either epsilon or ", "give either --epsilon or "),
    _Words(r"give either steps or epochs", "give either --steps or --epochs"),
    _Words(
        r"set \[privacy\] consent = \"everyone\", for a plan --consent everyone",
        "give --consent everyone",
        "--consent",
        'set [privacy] consent = "everyone"',
    ),
    _Words(
        r"; to train without (privacy|noise) use NonPrivateConfig",
        r"; to train without \1 use --method nonprivate",
        "--method",
    ),
    _Words(
        r"Correct the names, add the header, or use the layout of the file",
        "Correct the names, add the header, or name them with --auction-column, --ad-column and "
        "the like",
        "--auction-column",
        "Correct the names, or add the header",
    ),
    _Words(
        r"give a schema, which names the role of each column, or the layout of a public log by its "
        r"name",
        "give --schema FILE; or --label, --public and --sensitive with names of columns; or for a "
        "public log --layout NAME",
        "--label",
        "give --schema FILE, or for a public log --layout NAME",
    ),
    # Training.
    _Words(r"begin one \(`tulle train` without --resume\)", "begin one with `tulle train`"),
    _Words(r"split by user \(tulle\.data\.splits\.split_by_unit\)", "split by user"),
    _Words(r"with (?:config|method)\.make\(shape\)", "with `tulle plan --output FILE`"),
    _Words(r"with tulle\.train\.plan\(output=…\)", "with `tulle plan --output FILE`"),
    _Words(r"IndependentNoise\([^()]*\)", "--noise independent"),
    _Words(r"LatticeNoise\([^()]*\)", "--noise lattice"),
    _Words(r"BandedNoise\([^()]*\)", "--noise banded"),
    _Words(r"SelectedRows\([^()]*\)", "--noise selected-rows"),
    _Words(r"noise kind=", "--noise "),
    _Words(r"unit kind=", "--unit "),
    _Words(r"accounting=Accounting\.REPLACE_PLD", "--accounting replace"),
    _Words(r"(?:accounting=)?UserAccounting\.SEVERAL_ROWS", "--user-accounting 'several rows'"),
    _Words(r"(?:accounting=)?UserAccounting\.GROUP_PRIVACY", "--user-accounting 'group privacy'"),
    _Words(r"(?:accounting=)?UserAccounting\.CLIPPED_USERS", "--user-accounting 'clipped users'"),
    _Words(r"with RowChoice\.RANDOM", 'with choice = "random" under [unit] of --config'),
    _Words(r"label_share=", "--split ratio:"),
    _Words(r"epsilon_of_labels=", "--split epsilon:"),
    _Words(r"LabelCorrection\.FORWARD", "--correction forward"),
    _Words(r"LabelCorrection\.DEBIASED", "--correction debiased"),
    # Prepared data.
    _Words(
        r"features=\(\) must name at least one feature, e\.g\. by hash_all\(\)",
        "the schema names no feature; name at least one column of role public or sensitive",
    ),
    _Words(
        r"\w+=None, but column (.+?) is sensitive and its values are counted: "
        r"give both private=PrivateVocabularyConfig\(…\) and ledger=…, or hash the column with "
        r"HashedFeature",
        r"column \1 is sensitive and its values are counted: give --vocabulary-epsilon, "
        r"--vocabulary-delta and --ledger, or hash it with --hash-bins-sensitive",
    ),
    _Words(
        r"name all that labels may be: classes=\['none', 'sale'\]",
        "name all that labels may be: --classes none,sale",
        "--classes",
        "number all that labels may be from 0 on, and say how many they are (num_classes)",
    ),
    _Words(r"classes=\['none', 'sale'\]", "--classes none,sale", "--classes"),
    _Words(r"\bclasses has ", "--classes has ", "--classes"),
    _Words(
        r"give the largest value that a label counts as: clip=400",
        "give the largest value that a label counts as: --clip 400",
        "--clip",
        "give --values",
    ),
    _Words(
        r"Say its kind in the schema: kinds = \{(.+?) = \"real\"\} \(or \"integer\"\)",
        r'Say its kind with --kind \1=real (or integer); in a schema, kinds = {\1 = "real"}',
        "--kind",
        r'Say its kind in the schema: kinds = {\1 = "real"} (or "integer")',
    ),
    _Words(r"\bfrom_model(?:=…)?", "--from", "--from", "a model"),
    # Served models.
    _Words(r"\bvalues has (?=column|no column)", "--values has ", "--values"),
    _Words(
        r"give values=… with a table of its values",
        "give --values with a table of its values",
        "--values",
    ),
    _Words(
        r"or export form='json', which needs none",
        "or use --form json, which needs none",
        "--form",
        "or use `tulle export --form json`, which needs none",
    ),
    _Words(r"or None if (it|its value) is missing", r"or null if \1 is missing", "--row"),
    _Words(r"whose bins nothing else says, as log=… does", "that --log does not name"),
    _Words(r"\bset allow_constant=True", "give --allow-constant"),
    _Words(r"\bhour=True needs", "--hour needs"),
    _Words(r"\bday_of_week=True needs", "--day-of-week needs"),
    _Words(
        r"vocabulary_delta and ledger belong together",
        "vocabulary_delta and --ledger belong together",
    ),
    _Words(r"leave out schema and layout", "leave out --schema and --layout"),
    _Words(r"leave out the other feature settings", "leave out the other feature options"),
    _Words(r"LogFeature and BoundedFeature", "--log and bounds in the schema"),
    _Words(r"LogFeature", "--log"),
    _Words(r"HourFeature", "--hour"),
    _Words(r"DayOfWeekFeature", "--day-of-week"),
    _Words(r"or use HashedFeature", "or leave the option out"),
    _Words(r"(?i:write) (?:one|it again) with Encoder\.to_files\(\)", "use `tulle data prepare`"),
    # Ledgers, plans and cards.
    _Words(r"again is for a ledger(?=, which alone)", "--again is for a ledger"),
    _Words(r"; give a ledger too, or leave it out", "; give --ledger too, or leave it out"),
    _Words(r"Ledger\.create\(\) or `tulle budget create`", "`tulle budget create`"),
    _Words(
        r"claim what tulle\.accounting\.accountant\.guarantee\(\) returns",
        "claim what its event gives",
    ),
    _Words(r"known events are in tulle\.privacy\.events", "give an event of another kind"),
    _Words(
        r"account for a report without randomness as NonPrivate\(\)",
        "a report without randomness has no guarantee",
    ),
    _Words(r"NonPrivate\(\)", "kind 'NonPrivate'"),
    _Words(r"(?:make it anew|write it) with (?:build|write)_card\(\)", "make it anew"),
    _Words(r"compare and baseline are for a run", "--compare and --baseline are for a run"),
    _Words(r"move it away, or name another output", "move it away, or name another --output"),
    # Measurements.
    _Words(r"Unit\.(\w+)\(\)", r"unit '\1'"),
    _Words(
        r"raise memory_limit, or name a spill_folder with room",
        "raise --memory-limit, or name a --spill-folder with room",
        "--memory-limit",
        "use a machine with more",
    ),
    _Words(
        r"memory_limit, num_threads and spill_folder are DuckDB's",
        "--memory-limit and --spill-folder are DuckDB's",
    ),
    # Selections.
    _Words(
        r"name it in AuctionColumns\(consent=\.\.\.\), or set that to None if it means something "
        r"else",
        "name it with --consent-column, or rename it if it means something else",
    ),
    _Words(r"add its own term with release_estimate\(\)", "add its own term"),
    _Words(
        r"(server|device)_predictions or \1_prob, a column of the log",
        r"--\1-predictions or --\1-column, a column of the log",
        "--server-column",
        r"\1_predictions or \1_prob, a column of the log",
    ),
    _Words(r"shortlist=TopCandidates\(num_finalists=(\d+)\)", r"num_finalists = \1"),
    _Words(r"use shortlist=TopCandidates\(num_finalists=\.\.\.\)", "set num_finalists"),
    _Words(r"(?:an? )?FloorMechanism", "kind 'randomized-response'"),
    _Words(r"calibration=Calibration\.TIGHT", 'calibration = "tight"'),
    _Words(r"NonPersonalised\(\)", "kind 'non-personalised'"),
)
_OTHER_NAMES = {
    "num_bands": "--bands",
    "num_rows": "--rows",
    "bits": "--lattice-bits",
    "noise": "--noise-multiplier",
    "threshold": "--selection-threshold",
    "dialect": "--emit-sql",
    "form": "--format",
    "path": "--output",
    "prior": "--smoothing-prior",
    "rule": "--pricing",
}
"""Settings that options call something else."""
_NO_SETTINGS = ("--schema", "--prior", "--output", "--out", "--target")
"""Options whose files hold no settings that options have too."""
_SETTING = re.compile(r"(?<![\w.'\"=-])(?!format=)([a-z][a-z_-]*)=(?=[\w'\"-])")
"""A setting and its value; formats are those of files."""
_NAME = re.compile(r"(?<![\w.'\"=-])[a-z]+(?:_[a-z]+)+(?![\w('\"=-]|\.\w)")
"""A name of several words that stands alone, as settings do that are missing."""


def in_command_words(message: str, options: Collection[str]) -> str:
    """Says a way out by the options of a command in place of Python's names.

    Args:
      message: A message of the library.
      options: Names of the options of the command, e.g. "--epsilon".
    """
    for words in (*_WORDS, *_method_words(message)):
        is_there = words.option is None or words.option in options
        message = re.sub(words.python, words.command if is_there else words.otherwise, message)
    return message


def _method_words(message: str) -> tuple[_Words, ...]:
    """Words for the training methods that a message names by their classes."""
    if "Config" not in message:
        return ()
    from tulle.train.methods.catalogue import METHODS

    return tuple(
        _Words(rf"(?:config=)?\b{method.__name__}\b(?:\(\))?", f"--method {method.kind}")
        for method in METHODS
    )


def with_options(message: str, options: Collection[str], given: Sequence[str]) -> str:
    """Says `--epsilon 0.0` for `epsilon=0.0`, and `--clip-norm` for `clip_norm`.

    Only options that the command has are named. A setting that was not given may be that of a
    settings file, and then keeps its name.

    Args:
      message: A message about a setting.
      options: Names of the options of the command.
      given: The words of the command line.
    """
    before = ("", *given)
    has_file = any(
        word.endswith((".toml", ".json")) and before[place] not in _NO_SETTINGS
        for place, word in enumerate(given)
    )
    typed = {word.partition("=")[0] for word in given}

    known = typed & set(options) if has_file else options

    def with_value(found: re.Match[str]) -> str:
        names = (_option(found[1]), _OTHER_NAMES.get(found[1]))
        return next((f"{name} " for name in names if name in known), found[0])

    def alone(found: re.Match[str]) -> str:
        return _option(found[0]) if _option(found[0]) in known else found[0]

    return _NAME.sub(alone, _SETTING.sub(with_value, message))


def _option(setting: str) -> str:
    return "--" + setting.replace("_", "-")
