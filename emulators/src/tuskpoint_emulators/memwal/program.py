"""`tuskpoint-memwal`: the emulator as a program, for trials without an account."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from .access.accounts import Account, owner_of, public_key
from .server import MemWalEmulator, is_loopback
from .settings import RelayerSettings

NAME = "tuskpoint-memwal"

BAD_INPUT = 2
UNUSABLE_ADDRESS = 4

DEFAULT_LISTEN = "127.0.0.1:8000"
"""The address of a relayer in the SDK's environment `local`."""

DEFAULT_JOB_DELAY_S = 1.0


class _Parser(argparse.ArgumentParser):
    """Prints errors in one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{NAME}: {message}", file=sys.stderr)  # noqa: T201 - a program
        sys.exit(BAD_INPUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program until SIGTERM or SIGINT.

    Args:
        arguments: The command line; by default the arguments of the process.

    Returns:
        The exit code: 0, `BAD_INPUT` or `UNUSABLE_ADDRESS`.
    """
    parsed = _parser().parse_args(arguments)
    host, port = parsed.listen
    try:
        emulator = MemWalEmulator(_settings(parsed))
    except ValueError as error:
        return _failed(str(error), BAD_INPUT)
    try:
        return asyncio.run(_serve(emulator, host, port))
    except OSError as error:
        problem = error.strerror or str(error)
        return _failed(f"cannot listen on {host}:{port}: {problem}", UNUSABLE_ADDRESS)


async def _serve(emulator: MemWalEmulator, host: str, port: int) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await emulator.start(host, port)
    try:
        # A program that starts the emulator waits for the first line; people copy the others.
        lines = [f"{NAME} listening on {emulator.url.removeprefix('http://')}"]
        if not emulator.settings.accounts:
            lines += _variables(emulator)
        print(*lines, sep="\n", flush=True)  # noqa: T201 - a program
        await ended.wait()
    finally:
        await emulator.stop()
    return 0


def _variables(emulator: MemWalEmulator) -> list[str]:
    """Return the environment variables that a TuskPoint server needs."""
    return [
        f"MEMWAL_SERVER_URL={emulator.url}",
        f"MEMWAL_ACCOUNT_ID={emulator.credentials.account_id}",
        f"MEMWAL_PRIVATE_KEY={emulator.credentials.private_key}",
    ]


def _settings(parsed: argparse.Namespace) -> RelayerSettings:
    """Return the settings of the command line.

    Raises:
        ValueError: A value that does not fit.
    """
    if (parsed.account is None) != (not parsed.delegate):
        raise ValueError("--account and --delegate need each other")
    accounts = {}
    if parsed.account is not None:
        owner = owner_of(parsed.delegate[0])
        accounts[parsed.account] = Account(owner, frozenset(parsed.delegate))
    return RelayerSettings(
        accounts=accounts,
        job_delay_s=parsed.job_delay,
        lifetime_s=parsed.lifetime,
        limited=not parsed.no_rate_limits,
        refusal_delay_s=0.1,
        seed=parsed.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=NAME,
        description="A MemWal relayer that remembers in memory only and asks no model. "
        "Without --account it makes a key and an account and prints them.",
    )
    add = parser.add_argument
    add(
        "--listen",
        type=_address,
        default=_address(DEFAULT_LISTEN),
        metavar="HOST:PORT",
        help=f"where to serve, on this machine only; port 0 picks one (default {DEFAULT_LISTEN})",
    )
    add("--account", default=None, metavar="ID", help="the account that may call")
    add(
        "--delegate",
        type=_delegate,
        action="append",
        default=[],
        metavar="KEY",
        help="a public key that signs for it, 64 hexadecimal digits; may be given again",
    )
    add(
        "--job-delay",
        type=_seconds,
        default=DEFAULT_JOB_DELAY_S,
        metavar="SECONDS",
        help="what passes until a text can be recalled "
        f"(default {DEFAULT_JOB_DELAY_S:g}; the real one takes about 30)",
    )
    add(
        "--lifetime",
        type=_seconds,
        default=None,
        metavar="SECONDS",
        help="what passes until a memory expires; without it none does",
    )
    add("--no-rate-limits", action="store_true", help="let everything in that is signed")
    add("--seed", type=_count, default=0, metavar="N", help="seed of the chances of faults")
    return parser


def _address(raw: str) -> tuple[str, int]:
    host, separator, port = raw.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{raw!r} is not HOST:PORT")
    if int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{raw!r}: ports end at 65535")
    if not is_loopback(host):
        raise argparse.ArgumentTypeError(f"{raw!r}: {host} is not a loopback address")
    return host, int(port)


def _delegate(raw: str) -> str:
    try:
        return public_key(raw.removeprefix("0x"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(raw: str) -> float:
    try:
        value = float(raw)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{raw!r} is not a number of seconds") from None
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{raw!r} is not a number of seconds from 0 on")
    return value


def _count(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit():
        raise argparse.ArgumentTypeError(f"{raw!r} is not a whole number from 0 on")
    return int(raw)


def _failed(problem: str, code: int) -> int:
    print(f"{NAME}: {problem}", file=sys.stderr)  # noqa: T201 - a program
    return code


if __name__ == "__main__":
    sys.exit(main())
