"""How the program ends: exit codes, and the error that carries one.

Exit codes:
    0: drained, recovered, collected, or `--help` or `--version`.
    1: a defect.
    2: a setting or an argument cannot be used.
    3: another server holds the data directory.
    4: the address cannot be listened on.
    5: a directory cannot be made or written, or the blob directory is laid out in another
       way; for `token`: the token file cannot be written.
    6: the journal cannot be used: not ours, or written by a newer server; for `recover`:
       there is one already; for `collect`: there is none.
    7: the archive cannot take up its work, or the blob store does not answer.
    8: `recover`, `collect`: something stored is missing, damaged or malformed; nothing is left
       behind, or removed.
    9: `recover --skip-damaged`: recovered, but something damaged was left out.
"""

from __future__ import annotations

EXIT_DEFECT = 1
EXIT_CONFIG = 2
EXIT_DATA_DIR_TAKEN = 3
EXIT_ADDRESS = 4
EXIT_DIRECTORY = 5
EXIT_JOURNAL = 6
EXIT_ARCHIVE = 7
EXIT_DAMAGED = 8
EXIT_LEFT_OUT = 9


class StartError(Exception):
    """The server cannot start, or recover; its text is one line.

    Attributes:
        code: The exit code.
    """

    def __init__(self, code: int, problem: str) -> None:
        self.code = code
        super().__init__(problem)
