"""`postroad docs`: what a key of a file means."""

from __future__ import annotations

import difflib
from typing import Any

import click

from postroad.errors import InputError


@click.command()
@click.argument("key")
def docs(key: str) -> None:
    """Print what KEY means, in every file that has it.

    KEY is a name such as `links`, with its tables (`limits.session_queue`) or without
    (`session_queue`). docs/reference lists them all.
    """
    from postroad.reference import entries
    from postroad.routing import SCHEMES

    known = list(entries())
    mine = [one for one in known if one.name == key or one.name.endswith(f".{key}")]
    if not mine:
        names = {one.name for one in known} | {one.name.rpartition(".")[2] for one in known}
        near = difflib.get_close_matches(key, sorted(names), 3)
        remedy = f"did you mean {', '.join(near)}?" if near else "see docs/reference/files.md"
        raise InputError(f"no key {key!r}", remedy=remedy)
    click.echo("\n".join(map(str, mine)))
    if any(one.name == "scheme" for one in mine):
        width = max(map(len, SCHEMES))
        click.echo("Schemes:")
        for name, scheme in SCHEMES.items():
            click.echo(f"  {name:<{width}}  {scheme.summary}")


COMPLETION = (
    "Your shell completes commands, options and choices once it is told how, in `~/.bashrc`,",
    "`~/.zshrc` or `~/.config/fish/completions/postroad.fish`:",
    "",
    '    eval "$(_POSTROAD_COMPLETE=bash_source postroad)"    # bash 4.4 or newer',
    '    eval "$(_POSTROAD_COMPLETE=zsh_source postroad)"     # zsh',
    "    _POSTROAD_COMPLETE=fish_source postroad | source     # fish",
)


def commands_page() -> str:
    """Every command with its options, in Markdown."""
    from postroad.cli import cli

    lines = [
        "# Every command",
        "",
        "Made from the code by `make golden`; `--help` prints the same.",
        "",
    ]
    lines += ["Exit codes: 0 good, 1 failed, 2 wrong usage.", "", *COMPLETION, ""]

    def show(command: click.Command, name: str, parent: click.Context | None) -> None:
        context = click.Context(command, info_name=name, parent=parent)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                one = command.get_command(context, inner)
                assert one is not None
                show(one, inner, context)
            return
        lines.append(f"## {context.command_path}")
        words = " ".join(command.collect_usage_pieces(context))
        lines.extend(["", f"    {context.command_path} {words}".rstrip(), ""])
        lines.extend([_plain_help(command), ""])
        options = [one for one in command.params if isinstance(one, click.Option) and one.help]
        if options:
            lines.extend(["| option | meaning |", "|---|---|"])
        for option in options:
            record = option.get_help_record(context)
            assert record is not None
            lines.append(f"| `{record[0]}` | {' '.join(record[1].split())} |".replace("|t", "\\|t"))
        lines.append("")

    show(cli, "postroad", None)
    return "\n".join(lines).rstrip() + "\n"


def _plain_help(command: Any) -> str:
    return "\n".join(line.strip() for line in (command.help or "").replace("\b", "").splitlines())
