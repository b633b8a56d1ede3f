"""Retention rules, and the effects of applying them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EVERY_TENANT = "*"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """A rule for some threads; the most specific rule applies to a thread."""

    tenant: str = EVERY_TENANT
    agent_id: str = ""  # empty: every agent
    thread_id: str = ""  # empty: every thread
    delete_after_s: int = 0  # seconds without a change after which a thread is deleted; 0: never
    keep_last: int = 0  # checkpoints that each namespace keeps; 0: only the latest
    keep_for_s: int = 0  # seconds for which checkpoints are kept

    @property
    def prunes(self) -> bool:
        """Whether the rule deletes single checkpoints."""
        return bool(self.keep_last or self.keep_for_s)

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Specificity of the rule: the rule with the greatest rank applies."""
        return bool(self.thread_id), bool(self.agent_id), self.tenant != EVERY_TENANT

    @property
    def names(self) -> tuple[str, str, str]:
        """The agent and the threads of the rule; two rules must not have the same."""
        return self.tenant, self.agent_id, self.thread_id


@dataclass(frozen=True, slots=True)
class RetentionEffect:
    """Deletions of rules in one thread, or in all; only previews count bytes."""

    thread_id: str = ""
    thread_deleted: bool = False
    checkpoints: int = 0
    journal_bytes: int = 0  # bytes of states, values and writes that the journal can drop
    stored_bytes: int = 0  # bytes of segments that become unneeded


def rule_for(rules: Iterable[RetentionRule], agent_id: str, thread_id: str) -> RetentionRule | None:
    """Return the tenant's rule that applies to a thread; `None` if no rule applies."""
    fitting = (
        rule
        for rule in rules
        if rule.thread_id in ("", thread_id) and rule.agent_id in ("", agent_id)
    )
    return max(fitting, key=lambda rule: rule.rank, default=None)
