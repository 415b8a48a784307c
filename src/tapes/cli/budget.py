"""`tapes budget`: live calls that were counted, by whom, and what is left of the limits.

Knows nothing of how live calls are counted.
"""

import os

import click

from tapes.cli import outcomes
from tapes.cli.output import count, json_option, write, write_json
from tapes.spending import account_of, accounts_below, forget_spending

tape_argument = click.argument("path", metavar="TAPE", type=click.Path())


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def budget(ctx: click.Context, as_json: bool) -> None:
    """Which live calls were made, by whom, and how many are left.

    Limits are set where calls are made: CASSETTE_LIVE_BUDGET=20 (calls),
    CASSETTE_LIVE_BUDGET_TOKENS, CASSETTE_LIVE_BUDGET_USD. The count goes on from run to run until
    it is reset. Without a command: all tapes below this folder.

    \b
    Example:
      tapes budget
      tapes budget show weather.jsonl
      tapes budget reset weather.jsonl
    """
    if ctx.invoked_subcommand is not None:
        return
    accounts = list(accounts_below(".", os.environ))
    if as_json:
        write_json({"tapes": [outcomes.account_json(account) for account in accounts]})
    else:
        outcomes.accounts(accounts)


@budget.command()
@tape_argument
@json_option
def show(path: str, as_json: bool) -> None:
    """Who spent what on one tape, and what is left.

    A call whose process is gone stays open and counts as spent: nobody knows whether the provider
    answered it.

    \b
    Example:
      CASSETTE_LIVE_BUDGET=20 tapes budget show weather.jsonl
    """
    account = account_of(path, os.environ)
    if as_json:
        write_json(outcomes.account_json(account))
    else:
        outcomes.account(account)


@budget.command()
@tape_argument
@json_option
def reset(path: str, as_json: bool) -> None:
    """Begin the count of one tape anew.

    \b
    Example:
      tapes budget reset weather.jsonl
    """
    forgotten = forget_spending(path)
    if as_json:
        write_json({"tape": path, "forgotten": forgotten})
    else:
        write(f"{path}: {count(forgotten, 'live call')} forgotten; the count begins at 0")
