"""The command `postroad`: parses, calls, prints; no logic.

Commands are a written-out table of (name, module, function). A command's module is imported
only when the command is used, so that `postroad match` never waits for Spark.
Exit codes: 0 good, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from typing import Any

import click

from postroad import __version__
from postroad.errors import InputError, PostroadError

COMMANDS: dict[str, str] = {
    "advise": "postroad.cli.advise:advise",
    "broker": "postroad.cli.live:broker",
    "breakeven": "postroad.cli.cost:breakeven",
    "calibrate": "postroad.cli.calibrate:calibrate",
    "certs": "postroad.cli.live:certs",
    "check": "postroad.cli.check:check",
    "compare": "postroad.cli.compare:compare",
    "dashboard": "postroad.cli.dashboard:dashboard",
    "demo": "postroad.cli.compare:demo",
    "docs": "postroad.cli.docs:docs",
    "estimate": "postroad.cli.cost:estimate",
    "explain": "postroad.cli.explain:explain",
    "init": "postroad.cli.init:init",
    "otlp": "postroad.cli.dashboard:otlp",
    "plan": "postroad.cli.plan:plan",
    "replay": "postroad.cli.replay:replay",
    "reproduce": "postroad.cli.reproduce:reproduce",
    "pipeline": "postroad.cli.pipeline:pipeline",
    "simulate": "postroad.cli.simulate:simulate",
    "store": "postroad.cli.live:store",
    "match": "postroad.cli.match:match",
    "network": "postroad.cli.live:network",
    "publish": "postroad.cli.live:publish",
    "subscribe": "postroad.cli.live:subscribe",
    "users": "postroad.cli.live:users",
}

# Which extra brings a library that a command may miss.
EXTRAS = {
    "aiohttp": "live",
    "cryptography": "live",
    "mqtt5": "live",
    "prometheus_client": "live",
    "tomlkit": "live",
    "websockets": "live",
    "llvmlite": "fast",
    "numba": "fast",
    "pandas": "pipeline",
    "pyarrow": "pipeline",
    "pyspark": "pipeline",
    "jinja2": "report",
    "matplotlib": "report",
    "opentelemetry": "otlp",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are first asked for."""

    def __init__(self, *args: Any, commands_table: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_table = commands_table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.commands_table)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual, with the nearest name where there is none of this."""
        near = difflib.get_close_matches(args[0], self.commands_table, 1)
        if near and args[0] not in self.commands_table:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self.commands_table.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, commands_table=COMMANDS)
@click.version_option(__version__, prog_name="postroad")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Plan, simulate and run content-based publish/subscribe broker networks."""
    ctx.obj = {"debug": debug}


def main() -> None:
    """Run the command line; turn errors into one line and an exit code."""
    debug = "--debug" in sys.argv
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2 if error.exit_code == 2 else 1)
    except click.Abort:
        click.echo("postroad: interrupted", err=True)
        sys.exit(1)
    except InputError as error:
        _complain(error, debug)
        sys.exit(2)
    except PostroadError as error:
        _complain(error, debug)
        sys.exit(1)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        remedy = f"pip install 'postroad[{EXTRAS[library]}]'"
        _complain(InputError(f"{library} is not installed", remedy=remedy), debug)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(error: Exception, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    click.echo(f"postroad: {error}", err=True)
