"""`tuskpoint-walrus`: the emulator as a program, for trials without an account."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .ledger.directory import DamagedRecord
from .requests.auth import AuthSettings, secret_from_text
from .requests.cdn import CdnSettings
from .server import WalrusEmulator
from .settings import EmulatorSettings

NAME = "tuskpoint-walrus"

BAD_INPUT = 2
UNUSABLE_ADDRESS = 4

DEFAULT_LISTEN = "127.0.0.1:31415"
"""The default address of `walrus daemon`."""


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
        emulator = WalrusEmulator(_settings(parsed))
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror or error}", BAD_INPUT)
    except (ValueError, DamagedRecord) as error:
        return _failed(str(error), BAD_INPUT)
    try:
        return asyncio.run(_serve(emulator, host, port))
    except OSError as error:
        problem = error.strerror or str(error)
        return _failed(f"cannot listen on {host}:{port}: {problem}", UNUSABLE_ADDRESS)


async def _serve(emulator: WalrusEmulator, host: str, port: int) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await emulator.start(host, port)
    try:
        print(  # noqa: T201 - a program; whoever starts it waits for this line
            f"{NAME} listening on {emulator.url.removeprefix('http://')}", flush=True
        )
        await ended.wait()
    finally:
        await emulator.stop()
    return 0


def _settings(parsed: argparse.Namespace) -> EmulatorSettings:
    """Return the settings of the command line.

    Raises:
        ValueError: A value that does not fit.
        OSError: The file of the secret cannot be read.
    """
    secret = None
    if parsed.jwt_secret_file is not None:
        secret = secret_from_text(parsed.jwt_secret_file.read_text(encoding="utf-8").strip())
    return EmulatorSettings(
        ids=parsed.ids,
        epoch_s=parsed.epoch_seconds,
        store_latency_s=parsed.latency,
        read_latency_s=parsed.read_latency,
        balance=parsed.balance,
        auth=AuthSettings(secret=secret, verify_upload=parsed.jwt_verify_upload),
        cdn=None if parsed.cdn is None else CdnSettings(not_found_s=parsed.cdn),
        seed=parsed.seed,
        directory=parsed.directory,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=NAME,
        description="A Walrus publisher and aggregator that stores nothing on any network.",
    )
    add = parser.add_argument
    add(
        "--listen",
        type=_address,
        default=_address(DEFAULT_LISTEN),
        metavar="HOST:PORT",
        help=f"where to serve; port 0 picks one (default {DEFAULT_LISTEN})",
    )
    add(
        "--ids",
        default="fast",
        metavar="fast|real|n=K",
        help="blob IDs: of no network and quick, as on Mainnet (seconds each), or as with "
        "K shards (default fast)",
    )
    add(
        "--latency",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="what every store takes longer",
    )
    add(
        "--read-latency",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="what every read takes longer",
    )
    add(
        "--epoch-seconds",
        type=_length,
        default=None,
        metavar="N",
        help="length of an epoch; without it epochs pass only by the control API",
    )
    add(
        "--balance",
        type=_count,
        default=None,
        metavar="FROST",
        help="what is in the wallet; without it as much as it takes",
    )
    add(
        "--cdn",
        type=_seconds,
        default=None,
        metavar="SECONDS",
        help="put a cache in front of the reads that keeps a 404 for so long",
    )
    add(
        "--jwt-secret-file",
        type=Path,
        default=None,
        metavar="FILE",
        help="ask for tokens signed with this secret (text, or hexadecimal after 0x)",
    )
    add(
        "--jwt-verify-upload",
        action="store_true",
        help="compare the claims of tokens with what is stored",
    )
    add(
        "--directory",
        type=Path,
        default=None,
        metavar="DIR",
        help="keep what is stored there; without it, in memory only",
    )
    add("--seed", type=_count, default=0, metavar="N", help="seed of the chances of faults")
    return parser


def _address(raw: str) -> tuple[str, int]:
    host, separator, port = raw.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{raw!r} is not HOST:PORT")
    if int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{raw!r}: ports end at 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _seconds(raw: str) -> float:
    try:
        value = float(raw)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{raw!r} is not a number of seconds") from None
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{raw!r} is not a number of seconds from 0 on")
    return value


def _length(raw: str) -> float:
    value = _seconds(raw)
    if value == 0:
        raise argparse.ArgumentTypeError("an epoch lasts more than 0 seconds")
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
