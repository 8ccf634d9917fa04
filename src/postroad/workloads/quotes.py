"""Stock quotes, and subscribers that sink a tenth, half or all of them (GRAPE, section V-A).

Each publisher quotes one symbol of a daily OHLCV file once a second, its subscribers are at
`spread` brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from postroad.errors import InputError
from postroad.filters import literal, parse
from postroad.model import Scalar
from postroad.settings.sections import above, at_least
from postroad.workloads.model import Bad, Interest, Posting, Workload, refuse

COLUMNS = ("date", "symbol", "open", "high", "low", "close", "volume")
SUBSCRIBERS = ("random", "enterprise")


class Quote(NamedTuple):
    """One day of one stock."""

    date: str
    open: float
    high: float
    low: float
    close: float
    volume: int

    def attributes(self, symbol: str) -> dict[str, Scalar]:
        """The twelve attributes of a publication."""
        return {
            "class": "STOCK",
            "symbol": symbol,
            "open": self.open,
            "high": self.high,
            "low": self.low,
            "close": self.close,
            "volume": self.volume,
            "date": self.date,
            "openClose%Diff": round((self.close - self.open) / self.open, 6),
            "highLow%Diff": self.swing,
            "closeEqualsLow": self.close == self.low,
            "closeEqualsHigh": self.close == self.high,
        }

    @property
    def swing(self) -> float:
        return round((self.high - self.low) / self.low, 6)


def read_quotes(path: Path, bad: Bad = refuse) -> dict[str, list[Quote]]:
    """Daily OHLCV rows (CSV with a header, gzip too), per symbol in order of date.

    `bad` is told of every row that is not a quote; unless it raises, the others are read on.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}", remedy="check the file's name"
        ) from None
    except ValueError as error:
        raise InputError(f"not CSV: {error}", where=str(path), remedy="mend the file") from None
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InputError(
            f"no column {missing[0]!r}",
            where=str(path),
            remedy=f"name the columns {', '.join(COLUMNS)}",
        )
    usable = np.ones(len(table), bool)
    for name in COLUMNS[2:]:
        numbers = pd.to_numeric(table[name], errors="coerce")
        wrong = numbers.isna() | ((numbers <= 0) & (name != "volume"))
        for place in np.flatnonzero(wrong & usable):
            bad(
                InputError(
                    f"{name} is {table[name].iloc[place]!r}",
                    where=f"{path}:{place + 2}",
                    remedy="give a number" if name == "volume" else "give a number above 0",
                )
            )
        usable &= ~wrong
        table[name] = numbers.round(4)
    table = table[usable].sort_values(["symbol", "date"])
    table["volume"] = table["volume"].astype("int64")
    by_symbol: dict[str, list[Quote]] = {}
    columns = [table[name].tolist() for name in ("symbol", "date", *COLUMNS[2:])]
    for symbol, *row in zip(*columns, strict=True):
        by_symbol.setdefault(symbol, []).append(Quote(*row))
    return by_symbol


def made_up_quotes(symbols: int, days: int, seed: int) -> dict[str, list[Quote]]:
    """A look-alike series for those who have none: prices walk, swings and volumes cluster."""
    random = np.random.default_rng(seed)
    by_symbol: dict[str, list[Quote]] = {}
    for number in range(symbols):
        price = float(random.uniform(20, 200))
        swing = np.exp(random.normal(-4.2, 0.4))
        usual = np.exp(random.normal(14.5, 0.8))
        heat = 0.0  # above 0 in lively times
        quotes = []
        for day in range(days):
            heat = 0.9 * heat + random.normal(0, 0.2)
            spread = price * swing * np.exp(heat + random.normal(0, 0.3))
            low = max(0.01, round(price - spread * random.uniform(0.3, 0.7), 2))
            high = round(low + spread, 2)
            opened, closed = (round(low + (high - low) * random.uniform(), 2) for _ in "oc")
            volume = int(usual * np.exp(heat + random.normal(0, 0.3)))
            date = np.datetime64("2015-01-12") + day
            quotes.append(Quote(str(date), opened, high, low, closed, volume))
            price = max(1.0, closed * float(np.exp(random.normal(0, 0.005))))
        by_symbol[f"S{number:03d}"] = quotes
    return by_symbol


@dataclass(frozen=True)
class Quotes:
    """Settings of `[workload.quotes]`; without a `file` of OHLCV rows, a look-alike series."""

    file: str | None = None
    publishers: int = 40
    per_publisher: int = 50
    spread: int = 16
    subscribers: str = "random"
    minutes: float = 1.0

    def __post_init__(self) -> None:
        at_least(self, 1, "publishers", "per_publisher", "spread")
        above(self, 0, "minutes")
        if self.subscribers not in SUBSCRIBERS:
            raise InputError(
                f"subscribers is {self.subscribers!r}",
                remedy=f"choose one of: {', '.join(SUBSCRIBERS)}",
            )


def read(settings: Quotes, folder: Path, brokers: int, seed: int, bad: Bad = refuse) -> Workload:
    """The quotes of the file, or made-up ones, as a workload."""
    if settings.file is None:
        quotes = made_up_quotes(settings.publishers, 1500, seed)
    else:
        quotes = read_quotes(folder / settings.file, bad)
    return workload(
        quotes, brokers=brokers, publishers=settings.publishers,
        per_publisher=settings.per_publisher, spread=settings.spread,
        subscribers=settings.subscribers, minutes=settings.minutes, seed=seed,
    )  # fmt: skip


def workload(
    quotes: dict[str, list[Quote]],
    *,
    brokers: int,
    publishers: int,
    per_publisher: int,
    spread: int,
    subscribers: str,
    minutes: float,
    seed: int,
) -> Workload:
    """Each of some symbols is a publisher at a random broker; its subscribers are at `spread`."""
    if publishers > len(quotes):
        raise InputError(
            f"{publishers} publishers, and quotes of {len(quotes)} symbols",
            remedy="give a file with more symbols",
        )
    random = np.random.default_rng(seed)
    symbols = random.choice(sorted(quotes), publishers, replace=False).tolist()
    interests, advertisements, postings = [], [], []
    per_minute = 60
    for symbol in symbols:
        series = quotes[symbol]
        swing = float(np.quantile([quote.swing for quote in series], 0.9))
        volume = int(np.quantile([quote.volume for quote in series], 0.5))
        everything = f"class = 'STOCK' AND symbol = {literal(symbol)}"
        filters = {
            "low": parse(f"{everything} AND `highLow%Diff` > {swing:.6f}"),
            "medium": parse(f"{everything} AND volume > {volume}"),
            "high": parse(everything),
        }
        places = random.choice(brokers, min(spread, brokers), replace=False).tolist()
        for number in range(per_publisher):
            lot = (number + 0.5) / per_publisher
            if subscribers == "enterprise":
                rating = "high" if lot < 0.05 else "low"
                others = places[1:] or places
                place = places[0] if rating == "high" else others[int(random.integers(len(others)))]
            else:
                rating = "high" if lot < 0.05 else "medium" if lot < 0.3 else "low"
                place = places[int(random.integers(len(places)))]
            name = f"{symbol}-{number}"
            interests.append(Interest(name, place, name, filters[rating]))
        home = int(random.integers(brokers))
        advertisements.append(Interest(f"a{symbol}", home, symbol, filters["high"]))
        phase_us = int(random.integers(60_000_000 // per_minute))
        start = int(random.integers(len(series)))
        for number in range(round(minutes * per_minute)):
            quote = series[(start + number) % len(series)]
            time_us = phase_us + number * 60_000_000 // per_minute
            attributes = quote.attributes(symbol)
            postings.append(Posting(time_us, home, symbol, str(number), attributes))
    postings.sort(key=lambda posting: posting.time_us)
    return Workload(tuple(interests), tuple(advertisements), tuple(postings))
