"""Options that several commands of `tulle select` share."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tulle.select.files.auction_files import AuctionColumns

SelectionFile = Annotated[
    Path,
    typer.Argument(
        metavar="SELECTION.toml", help="Mechanism, privacy and pricing, as `plan` writes them."
    ),
]
AuctionsFile = Annotated[
    Path,
    typer.Argument(
        metavar="AUCTIONS",
        help="One row a candidate, or JSON lines with one auction each: .parquet, .csv, .jsonl.",
    ),
]
ChoicesFile = Annotated[
    Path, typer.Argument(metavar="CHOICES", help="What `decide` wrote for these auctions.")
]


DATA, PRIVACY, OUTPUT = "Data", "Privacy", "Output"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Names of the columns of auctions."""

    auction_column: Annotated[
        str, typer.Option(help="Column with the auction of a candidate.", rich_help_panel=DATA)
    ] = "auction_id"
    ad_column: Annotated[str, typer.Option(help="Column with the ad.", rich_help_panel=DATA)] = "ad"
    bid_column: Annotated[
        str,
        typer.Option(
            help="Column with the value of a click to the advertiser.", rich_help_panel=DATA
        ),
    ] = "bid"
    server_column: Annotated[
        str,
        typer.Option(
            help="Column with the probability of a click by public data.", rich_help_panel=DATA
        ),
    ] = "p_server"
    device_column: Annotated[
        str,
        typer.Option(
            help="Column with the probability of a click by private data.", rich_help_panel=DATA
        ),
    ] = "p_device"
    user_column: Annotated[
        str,
        typer.Option(help="Column with who asked; may be absent.", rich_help_panel=DATA),
    ] = "user_id"
    consent_column: Annotated[
        str,
        typer.Option(
            help="Column with whether they agreed to personalised ads; may be absent.",
            rich_help_panel=DATA,
        ),
    ] = "consent"

    def columns(self) -> "AuctionColumns":
        """The names as the reader of auctions takes them."""
        from tulle.select.files.auction_files import AuctionColumns

        return AuctionColumns(
            auction=self.auction_column,
            ad=self.ad_column,
            bid=self.bid_column,
            server_prob=self.server_column,
            device_prob=self.device_column,
            user=self.user_column,
            consent=self.consent_column,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How results are printed."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = (
        False
    )
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress on stderr.", rich_help_panel=OUTPUT)
    ] = False
