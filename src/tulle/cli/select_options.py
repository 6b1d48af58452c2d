"""Options that several commands of `tulle select` share."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tulle.data.auction_files import AuctionColumns

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Names of the columns of auctions."""

    auction_column: Annotated[str, typer.Option(help="The auction of a candidate.")] = "auction_id"
    ad_column: Annotated[str, typer.Option(help="The ad.")] = "ad"
    bid_column: Annotated[str, typer.Option(help="Value of a click to the advertiser.")] = "bid"
    server_column: Annotated[str, typer.Option(help="Chance of a click by public data.")] = (
        "p_server"
    )
    device_column: Annotated[str, typer.Option(help="Chance of a click by private data.")] = (
        "p_device"
    )
    user_column: Annotated[str, typer.Option(help="Who asked; may be absent.")] = "user_id"
    consent_column: Annotated[
        str, typer.Option(help="Whether they agreed to personalised ads; may be absent.")
    ] = "consent"

    def columns(self) -> "AuctionColumns":
        """As the reader of auctions takes them."""
        from tulle.data.auction_files import AuctionColumns

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

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False
