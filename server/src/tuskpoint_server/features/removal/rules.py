"""Retention rules: which threads and checkpoints are kept, and what applying rules deletes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EVERY_TENANT = "*"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """A rule for the threads that it names; the most specific rule applies to a thread."""

    tenant: str = EVERY_TENANT
    agent_id: str = ""  # empty: every agent
    thread_id: str = ""  # empty: every thread
    delete_after_s: int = 0  # seconds without a change after which a thread is deleted; 0: never
    keep_last: int = 0  # checkpoints that each namespace keeps; 0: the latest
    keep_for_s: int = 0  # seconds for which checkpoints are kept

    @property
    def prunes(self) -> bool:
        """Whether it deletes single checkpoints."""
        return bool(self.keep_last or self.keep_for_s)

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """How specific it is: the greatest applies."""
        return bool(self.thread_id), bool(self.agent_id), self.tenant != EVERY_TENANT

    @property
    def names(self) -> tuple[str, str, str]:
        """What it is for; two rules for the same would contradict each other."""
        return self.tenant, self.agent_id, self.thread_id


@dataclass(frozen=True, slots=True)
class RetentionEffect:
    """What rules delete of one thread, or of all; bytes are counted for previews only."""

    thread_id: str = ""
    thread_deleted: bool = False
    checkpoints: int = 0
    journal_bytes: int = 0  # of states, values and writes that the journal does not need then
    stored_bytes: int = 0  # of segments that nothing needs then


def rule_for(rules: Iterable[RetentionRule], agent_id: str, thread_id: str) -> RetentionRule | None:
    """Return the rule that applies to a thread, of those of its tenant; `None`: there is none."""
    fitting = (
        rule
        for rule in rules
        if rule.thread_id in ("", thread_id) and rule.agent_id in ("", agent_id)
    )
    return max(fitting, key=lambda rule: rule.rank, default=None)
