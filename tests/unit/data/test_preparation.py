import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan, hash_all, vocabulary_all
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.formats.public import DISPLAY
from tulle.data.formats.taobao_tables import TaobaoTables
from tulle.data.preparation import PrepareConfig, VocabularyPayment, begun_plan, prepare_log
from tulle.data.prepared.writer import DatasetWriter
from tulle.data.tables.layout import BadLines
from tulle.data.tables.sources import LogFiles
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.units import Adjacency, Unit
from unit.data.small_log import SCHEMA, lines, small_layout, small_log, small_plan, write_log


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return write_log(tmp_path / "small.csv", lines(210))


def test_the_arrays_are_those_of_the_rows_in_order(csv: Path, tmp_path: Path) -> None:
    dataset = prepare_log(small_log(csv), small_plan(), tmp_path / "out").dataset
    dataset.verify()
    rows = np.arange(210)
    np.testing.assert_array_equal(dataset.labels, (rows % 3 == 0).astype(np.float32))
    np.testing.assert_array_equal(dataset.times, rows * 1800)
    np.testing.assert_array_equal(dataset.days, rows * 1800 // 86_400)
    table = pl.read_csv(csv, infer_schema=False)
    np.testing.assert_array_equal(
        dataset.gather(slice(None)), build_encoder(small_plan()).encode(table)
    )
    assert dataset.units is not None
    np.testing.assert_array_equal(dataset.units[0::3], dataset.units[2::3])
    assert len(np.unique(dataset.units)) == 70
    assert [feature.name for feature in dataset.features] == ["site", "price", "age", "city"]
    assert Encoder.from_files(dataset.folder).fingerprint() == (
        dataset.head.contents.encoder_fingerprint
    )


@pytest.mark.parametrize("rows_per_block", [19, 210, 1000])
@pytest.mark.parametrize("num_workers", [1, 3])
def test_the_bytes_do_not_depend_on_blocks_and_threads(
    csv: Path, tmp_path: Path, rows_per_block: int, num_workers: int
) -> None:
    expected = prepare_log(small_log(csv), small_plan(), tmp_path / "expected").dataset
    made = prepare_log(
        small_log(csv, rows_per_block=rows_per_block),
        small_plan(),
        tmp_path / "made",
        config=PrepareConfig(num_workers=num_workers),
    ).dataset
    assert bytes_of(made.folder) == bytes_of(expected.folder)


def test_several_files_follow_each_other(csv: Path, tmp_path: Path) -> None:
    parts = [
        write_log(tmp_path / f"part{first}.csv", lines(70, first=first)) for first in (0, 70, 140)
    ]
    whole = prepare_log(small_log(csv), small_plan(), tmp_path / "whole").dataset
    joined = prepare_log(small_log(*parts), small_plan(), tmp_path / "joined").dataset
    assert joined.fingerprint == whole.fingerprint


def test_a_copy_of_a_file_makes_no_dataset_and_costs_nothing(csv: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_bytes(csv.read_bytes())
    with pytest.raises(DataError, match=r"copy\.csv is a copy of small\.csv"):
        prepare_log(small_log(csv, copy), small_plan(), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.csv", "small.csv"]


def test_parquet_and_text_give_the_same_dataset(csv: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    pl.read_csv(csv).write_parquet(path)
    from_text = prepare_log(small_log(csv), small_plan(), tmp_path / "a").dataset
    from_parquet = prepare_log(small_log(path), small_plan(), tmp_path / "b").dataset
    assert from_parquet.fingerprint == from_text.fingerprint


def stop_after(monkeypatch: pytest.MonkeyPatch, num_blocks: int) -> None:
    append, calls = DatasetWriter.append, []

    def stopping(self: DatasetWriter, *args: object, **kwargs: object) -> None:
        if len(calls) == num_blocks:
            raise KeyboardInterrupt
        calls.append(1)
        append(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(DatasetWriter, "append", stopping)


def interrupt(log: LogFiles, plan: FeaturePlan, folder: Path, num_blocks: int = 3) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, num_blocks)
        with pytest.raises(KeyboardInterrupt):
            prepare_log(log, plan, folder)


@pytest.mark.parametrize("num_blocks", [0, 1, 5])
def test_an_interrupted_run_continues_to_the_same_bytes(
    csv: Path, tmp_path: Path, num_blocks: int
) -> None:
    whole = prepare_log(small_log(csv), small_plan(), tmp_path / "whole")
    interrupt(small_log(csv), small_plan(), tmp_path / "out", num_blocks)
    result = prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    assert result.num_rows_resumed == 40 * num_blocks
    assert bytes_of(result.dataset.folder) == bytes_of(whole.dataset.folder)
    assert whole.num_rows_resumed == 0


def test_a_run_with_other_features_does_not_continue(csv: Path, tmp_path: Path) -> None:
    interrupt(small_log(csv), small_plan(), tmp_path / "out")
    other = hash_all(SCHEMA, 999, 500, salt=small_plan().salt)
    with pytest.raises(RunStateError, match="begun with another feature plan"):
        prepare_log(small_log(csv), other, tmp_path / "out")
    with pytest.raises(RunStateError, match="begun with another encoder"):
        prepare_log(small_log(csv), build_encoder(small_plan()), tmp_path / "out")
    prepare_log(small_log(csv), other, tmp_path / "out", resume=False)


@pytest.mark.parametrize("change", ["content", "time", "more", "order"])
def test_a_run_on_changed_files_does_not_continue(csv: Path, tmp_path: Path, change: str) -> None:
    second = write_log(tmp_path / "second.csv", lines(30, first=210))
    log = small_log(csv, second)
    interrupt(log, small_plan(), tmp_path / "out")
    stamp = csv.stat().st_mtime_ns
    if change == "content":
        csv.write_text(csv.read_text().replace("site3", "site4", 1))
        os.utime(csv, ns=(stamp, stamp))
    elif change == "time":
        os.utime(csv, ns=(stamp, stamp + 10**9))
    elif change == "more":
        write_log(csv, lines(211))
    else:
        log = small_log(second, csv)
    with pytest.raises(RunStateError, match="begun with another set of input files"):
        prepare_log(log, small_plan(), tmp_path / "out")


@pytest.mark.parametrize(
    ("log", "config", "what"),
    [
        ({"bad_lines": BadLines.SKIP}, {}, "treatment of bad lines"),
        (
            {"layout": dataclasses.replace(small_layout(), missing=("", "0"))},
            {},
            "layout",
        ),
        ({}, {"num_classes": 3}, "number of classes"),
        ({}, {"drop_rows_without_unit": True}, "treatment of rows without unit"),
    ],
)
def test_a_run_with_other_settings_does_not_continue(
    csv: Path, tmp_path: Path, log: dict[str, object], config: dict[str, object], what: str
) -> None:
    interrupt(small_log(csv), small_plan(), tmp_path / "out")
    with pytest.raises(RunStateError, match=f"begun with another {what}"):
        prepare_log(
            dataclasses.replace(small_log(csv), **log),  # type: ignore[arg-type]
            small_plan(),
            tmp_path / "out",
            config=PrepareConfig(**config),  # type: ignore[arg-type]
        )


def test_what_was_begun_is_known(csv: Path, tmp_path: Path) -> None:
    assert begun_plan(tmp_path / "out") is None
    interrupt(small_log(csv), small_plan(), tmp_path / "out")
    assert begun_plan(tmp_path / "out") == small_plan()


def test_a_file_that_changes_while_it_is_read_is_refused(
    csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = DatasetWriter.append

    def append_and_change(self: DatasetWriter, *args: object, **kwargs: object) -> None:
        append(self, *args, **kwargs)  # type: ignore[arg-type]
        os.utime(csv, ns=(1, 1))

    monkeypatch.setattr(DatasetWriter, "append", append_and_change)
    with pytest.raises(DataError, match="changed while it was read"):
        prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


BAD_LABELS = ["", "2", "0.5", "-1", "maybe", "nan"]


@pytest.mark.parametrize("label", BAD_LABELS)
def test_a_label_that_is_no_class_is_an_error_with_its_place(tmp_path: Path, label: str) -> None:
    rows = lines(100)
    rows[57] = label + rows[57][1:]
    csv = write_log(tmp_path / "small.csv", rows)
    message = r"column 'click' of role label .* from 0 to 1 nor .* in small\.csv, row 58; "
    with pytest.raises(DataError, match=message) as caught:
        prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    assert repr(label) not in str(caught.value)


def test_more_classes_are_labels_too(tmp_path: Path) -> None:
    rows = [f"{row % 4}" + line[1:] for row, line in enumerate(lines(20))]
    csv = write_log(tmp_path / "small.csv", rows)
    config = PrepareConfig(num_classes=4)
    dataset = prepare_log(small_log(csv), small_plan(), tmp_path / "out", config=config).dataset
    np.testing.assert_array_equal(dataset.labels, np.arange(20) % 4)
    assert dataset.num_classes == 4


def test_a_place_is_a_range_where_lines_were_left_out(tmp_path: Path) -> None:
    rows = lines(100)
    rows[50] = "too,few"
    rows[57] = "7" + rows[57][1:]
    csv = write_log(tmp_path / "small.csv", rows)
    log = dataclasses.replace(small_log(csv), bad_lines=BadLines.SKIP)
    with pytest.raises(DataError, match="between rows 41 and 80"):
        prepare_log(log, small_plan(), tmp_path / "out")


def test_bad_lines_are_refused_or_counted(tmp_path: Path) -> None:
    rows = lines(100)
    rows[50] = rows[99] = "too,few"
    csv = write_log(tmp_path / "small.csv", rows)
    with pytest.raises(DataError, match=r"small\.csv line 52"):
        prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    log = dataclasses.replace(small_log(csv), bad_lines=BadLines.SKIP)
    result = prepare_log(log, small_plan(), tmp_path / "out", resume=False)
    assert (result.dataset.num_rows, result.num_bad_lines) == (98, 2)


def test_a_block_of_bad_lines_alone_is_no_problem(tmp_path: Path) -> None:
    rows = lines(20)
    rows[4:8] = ["bad"] * 4
    csv = write_log(tmp_path / "small.csv", rows)
    log = dataclasses.replace(small_log(csv, rows_per_block=4), bad_lines=BadLines.SKIP)
    assert prepare_log(log, small_plan(), tmp_path / "out").dataset.num_rows == 16


def test_rows_without_a_unit_are_refused_or_dropped(tmp_path: Path) -> None:
    rows = lines(100)
    rows[50] = rows[50].replace("user16", "")
    csv = write_log(tmp_path / "small.csv", rows)
    with pytest.raises(DataError, match="column 'user' has nulls"):
        prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    config = PrepareConfig(drop_rows_without_unit=True)
    result = prepare_log(
        small_log(csv), small_plan(), tmp_path / "out", config=config, resume=False
    )
    assert result.dataset.num_rows == 99


def test_a_row_without_a_time_is_refused(tmp_path: Path) -> None:
    rows = lines(10)
    rows[3] = rows[3].replace(",5400,", ",,")
    csv = write_log(tmp_path / "small.csv", rows)
    with pytest.raises(DataError, match=r"column 'at' has nulls, the first in small\.csv, row 4"):
        prepare_log(small_log(csv), small_plan(), tmp_path / "out")


def test_a_log_without_rows_or_files_makes_no_dataset(tmp_path: Path) -> None:
    csv = write_log(tmp_path / "small.csv", [])
    with pytest.raises(DataError, match="no row"):
        prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    with pytest.raises(DataError, match=r"missing\.csv cannot be read: No such file"):
        prepare_log(small_log(tmp_path / "missing.csv"), small_plan(), tmp_path / "other")
    assert not (tmp_path / "out").exists()


def test_features_of_another_schema_are_refused(csv: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another schema"):
        prepare_log(small_log(csv), hash_all(DISPLAY.schema), tmp_path / "out")


def test_a_folder_that_only_has_the_name_of_an_unfinished_dataset_is_left_alone(
    csv: Path, tmp_path: Path
) -> None:
    prepare_log(small_log(csv), small_plan(), tmp_path / "out.partial")
    before = bytes_of(tmp_path / "out.partial")
    with pytest.raises(RunStateError, match=r"out.partial .* not an unfinished dataset"):
        prepare_log(small_log(csv), small_plan(), tmp_path / "out", resume=False)
    assert bytes_of(tmp_path / "out.partial") == before


@pytest.mark.parametrize("name", ["data/mine.txt", "mine.tmp"])
def test_files_of_others_in_a_folder_of_that_name_are_never_cleared_away(
    csv: Path, tmp_path: Path, name: str
) -> None:
    mine = tmp_path / "out.partial" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(RunStateError, match=r"out.partial .* not an unfinished dataset"):
        prepare_log(small_log(csv), small_plan(), tmp_path / "out", resume=False)
    assert mine.read_text() == "mine"


def test_what_is_left_of_a_run_that_was_killed_at_its_end_is_no_obstacle(
    csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    prepare_log(small_log(csv), small_plan(), tmp_path / "out")
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "elsewhere")


def test_an_encoder_that_cannot_be_thrown_away_is_not_used_for_other_features(
    csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(13, "Permission denied")

    interrupt(small_log(csv), small_plan(), tmp_path / "out")
    monkeypatch.setattr(shutil, "rmtree", denied)
    with pytest.raises(RunStateError, match="Permission denied"):
        prepare_log(small_log(csv), hash_all(SCHEMA, 70, 50), tmp_path / "out", resume=False)
    assert not (tmp_path / "out").exists()


def test_two_runs_into_one_folder_are_refused(csv: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def second_run(_rows: int, _done: int, _total: int) -> None:
        with pytest.raises(RunStateError, match="being written by another process"):
            prepare_log(small_log(csv), small_plan(), tmp_path / "out")
        seen.append("refused")

    prepare_log(small_log(csv), small_plan(), tmp_path / "out", progress=second_run)
    assert seen == ["refused"] * 6


def test_progress_ends_with_all_rows_and_bytes(csv: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int, int]] = []
    second = write_log(tmp_path / "second.csv", lines(30, first=210))

    def note(rows: int, done: int, total: int) -> None:
        calls.append((rows, done, total))

    prepare_log(small_log(csv, second), small_plan(), tmp_path / "out", progress=note)
    size = csv.stat().st_size + second.stat().st_size
    assert calls == sorted(calls)
    assert calls[-1] == (240, size, size)


def test_a_test_set_gets_the_ids_of_its_training_set(csv: Path, tmp_path: Path) -> None:
    train = prepare_log(small_log(csv), small_plan(), tmp_path / "train").dataset
    other = write_log(tmp_path / "test.csv", lines(50))
    encoder = Encoder.from_files(train.folder)
    test = prepare_log(small_log(other), encoder, tmp_path / "test").dataset
    np.testing.assert_array_equal(test.gather(slice(None)), train.gather(slice(0, 50)))
    np.testing.assert_array_equal(test.units, train.units[:50])  # type: ignore[index]


def ledger(path: Path) -> Ledger:
    made = Ledger.create(path)
    made.create_budget(
        Budget(
            name="rows", unit=Unit.example(), adjacency=Adjacency.REPLACE, epsilon=50.0, delta=0.01
        )
    )
    return made


def test_a_private_vocabulary_is_paid_for_once_even_if_interrupted(
    csv: Path, tmp_path: Path
) -> None:
    books = ledger(tmp_path / "ledger.db")
    private = PrivateVocabularyConfig(unit=Unit.example(), epsilon=20.0, delta=1e-3)
    payment = VocabularyPayment(private=private, ledger=books)
    plan = vocabulary_all(SCHEMA, 2, 10, salt=small_plan().salt)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            prepare_log(small_log(csv), plan, tmp_path / "out", payment=payment)
    begun = Encoder.from_files(tmp_path / "out.partial" / "data")
    result = prepare_log(small_log(csv), plan, tmp_path / "out", payment=payment)
    assert len(books.spends("rows")) == 1
    assert result.num_rows_resumed == 80
    assert result.dataset.head.contents.encoder_fingerprint == begun.fingerprint()


@pytest.mark.parametrize(
    "row", ["2,site1,1,5,city1,user1,0,n", "1,site1,1,5,city1,,0,n", "1,site1,1,5,city1,user1,,n"]
)
def test_a_row_that_is_refused_is_found_before_a_vocabulary_is_paid_for(
    tmp_path: Path, row: str
) -> None:
    # Who mends the file begins anew, and would pay again.
    csv = write_log(tmp_path / "small.csv", [*lines(50), row, *lines(50)])
    books = ledger(tmp_path / "ledger.db")
    private = PrivateVocabularyConfig(unit=Unit.example(), epsilon=20.0, delta=1e-3)
    payment = VocabularyPayment(private=private, ledger=books)
    with pytest.raises(DataError, match=r"role label|has nulls"):
        prepare_log(small_log(csv), vocabulary_all(SCHEMA), tmp_path / "out", payment=payment)
    assert books.spends("rows") == ()


def test_a_sensitive_vocabulary_without_payment_is_refused(csv: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sensitive and its values are counted"):
        prepare_log(small_log(csv), vocabulary_all(SCHEMA), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["small.csv"]


def test_an_encoder_is_not_paid_for_again(csv: Path, tmp_path: Path) -> None:
    private = PrivateVocabularyConfig(unit=Unit.example(), epsilon=1.0, delta=1e-6)
    payment = VocabularyPayment(private=private, ledger=ledger(tmp_path / "ledger.db"))
    with pytest.raises(ConfigError, match="nothing is counted"):
        prepare_log(small_log(csv), build_encoder(small_plan()), tmp_path / "out", payment=payment)


def test_a_vocabulary_by_user_needs_bounded_rows(tmp_path: Path) -> None:
    private = PrivateVocabularyConfig(unit=Unit.user(), epsilon=1.0, delta=1e-6)
    with pytest.raises(ConfigError, match="bounded before they are counted"):
        VocabularyPayment(private=private, ledger=ledger(tmp_path / "ledger.db"))


def test_the_three_tables_of_taobao_are_joined(tmp_path: Path) -> None:
    (tmp_path / "raw_sample.csv").write_text(
        "user,time_stamp,adgroup_id,pid,nonclk,clk\n1,1493942400,7,p,1,0\n2,1493946000,8,p,0,1\n"
    )
    (tmp_path / "ad_feature.csv").write_text(
        "adgroup_id,cate_id,campaign_id,customer,brand,price\n7,1,2,3,NULL,9.5\n8,1,2,3,4,1\n"
    )
    (tmp_path / "user_profile.csv").write_text(
        "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,"
        "shopping_level,occupation,new_user_class_level \n1,0,1,1,1,,3,0,\n"
    )
    names = ("raw_sample.csv", "ad_feature.csv", "user_profile.csv")
    first, second, third = (tmp_path / name for name in names)
    log = TaobaoTables(raw_sample=first, ad_feature=second, user_profile=third)
    dataset = prepare_log(log, hash_all(log.layout.schema), tmp_path / "out").dataset
    assert dataset.labels is not None
    assert dataset.days is not None
    assert dataset.labels.tolist() == [0, 1]
    assert dataset.days.tolist() == [17_291, 17_291]
    assert [source["name"] for source in dataset.head.provenance["sources"]] == list(names)  # type: ignore[attr-defined, index]
