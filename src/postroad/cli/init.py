"""`postroad init`: a folder to start from."""

from __future__ import annotations

from pathlib import Path

import click

from postroad.errors import InputError
from postroad.workloads.starters import KINDS


@click.command()
@click.argument("name")
@click.option(
    "--from", "kind", type=click.Choice(list(KINDS)), default="quotes", show_default=True,
    help="What is published and asked for.",
)  # fmt: skip
@click.option("--brokers", type=click.IntRange(2, 500), default=5, show_default=True)
def init(name: str, kind: str, brokers: int) -> None:
    """Write a folder of starter files, each with comments, that run as they are."""
    from postroad.workloads.starters import files

    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{name!r} is there already", remedy="choose another name")
    texts = files(folder.resolve().name, kind, brokers)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    click.echo(f"{folder}: {', '.join(texts)}")
    click.echo(f"begin with: cd {folder} && postroad simulate scenario.toml")
