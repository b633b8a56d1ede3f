"""The check accepts histories that one order explains, and rejects histories that no order
explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.many.history import NEVER, NOTHING, Operation, Stored, problems

History = list[Operation]


def save(number: int, invoked: float, answered: float, **more: object) -> Operation:
    """Return a save that became change `number`, with content of the same name as its ID."""
    name = f"{number}"
    made = Operation("t", "save", invoked, answered, name, seq=number, checkpoint_id=name)
    return replace(made, **more)  # type: ignore[arg-type]


def load(number: int, invoked: float, answered: float) -> Operation:
    name = f"{number}" if number else ""
    return Operation("t", "load", invoked, answered, name, seq=number, checkpoint_id=name)


def refused(expected: str, invoked: float, answered: float) -> Operation:
    return Operation("t", "save", invoked, answered, "no", expected, refused=True)


def end(count: int) -> list[Stored]:
    return [Stored(number, f"{number}", f"{number}") for number in range(1, count + 1)]


def unknown(number: int, invoked: float) -> Operation:
    """Return a save without an answer."""
    return Operation("t", "save", invoked, NEVER, f"{number}")


def test_an_operation_after_the_other() -> None:
    history = [
        load(0, 0, 1),
        save(1, 2, 3, expected=""),
        load(1, 4, 5),
        refused("", 6, 7),
        save(2, 8, 9, expected="1"),
        save(3, 10, 11),
    ]
    assert problems(history, end(3)) == []


def test_concurrent_operations_take_effect_in_any_order() -> None:
    history = [
        *(save(number, 0, 10) for number in (2, 1, 3)),
        *(load(number, 0, 10) for number in (3, 0, 2)),
        refused("2", 0, 10),
        refused("", 0, 10),
    ]
    assert problems(history, end(3)) == []


def test_a_save_without_an_answer_takes_effect_at_any_time_or_never() -> None:
    history = [save(1, 0, 1), unknown(2, 2), unknown(9, 2), load(1, 3, 4), load(2, 5, 6)]
    assert problems(history, end(2)) == []


def test_a_save_without_an_answer_may_be_what_refuses_another() -> None:
    history = [save(1, 0, 1), unknown(2, 2), refused("1", 3, 4), load(2, 5, 6)]
    assert problems(history, end(2)) == []


EARLIER, OTHER, AFTER = "was there before", "is there instead", "it came after"
ORDER, TIMES, REFUSAL = "in the order of the IDs", "times", "nothing else was on top"
WRONG: dict[str, tuple[str, History, list[Stored]]] = {
    "a stale load": (EARLIER, [save(1, 0, 1), load(0, 2, 3)], end(1)),
    "a load that goes back": (EARLIER, [save(1, 0, 9), load(1, 1, 2), load(0, 3, 4)], end(1)),
    "a load from the future": (EARLIER, [load(1, 0, 1), save(1, 2, 3)], end(1)),
    "other content": (OTHER, [save(1, 0, 1), replace(load(1, 2, 3), token="2")], end(1)),
    "numbers against the time": (EARLIER, [save(2, 0, 1), save(1, 2, 3)], end(2)),
    "a save below what its agent saw": (
        EARLIER,
        [save(2, 0, 9), load(2, 1, 2), save(1, 3, 4)],
        end(2),
    ),
    "one number twice": (OTHER, [save(1, 0, 1), save(1, 0, 1, token="x")], end(1)),
    "a gap": (ORDER, [save(1, 0, 1), save(3, 2, 3)], [end(3)[0], end(3)[2]]),
    "a lost save": (OTHER, [save(1, 0, 1), save(2, 2, 3)], end(1)),
    "a save made twice": (TIMES, [save(1, 0, 1)], [*end(1), Stored(2, "2", "1")]),
    "a save that nobody made": (TIMES, [save(1, 0, 1)], end(2)),
    "a refused save that is there": (
        TIMES,
        [save(1, 0, 1), replace(refused("", 2, 3), token="2")],
        end(2),
    ),
    "an ID that sorts before an older one": (
        ORDER,
        [save(1, 0, 1, checkpoint_id="9"), save(2, 2, 3)],
        [Stored(1, "9", "1"), Stored(2, "2", "2")],
    ),
    "two children of one head": (
        AFTER,
        [save(1, 0, 1), save(2, 2, 5, expected="1"), save(3, 2, 5, expected="1")],
        end(3),
    ),
    "a child of a head that had gone": (
        AFTER,
        [save(1, 0, 1), unknown(2, 2), save(3, 3, 4, expected="1")],
        end(3),
    ),
    "a first save that was not the first": (
        AFTER,
        [save(1, 0, 5), save(2, 0, 5, expected="")],
        end(2),
    ),
    "a refusal without a reason": (
        REFUSAL,
        [save(1, 0, 1), refused("1", 2, 3)],
        end(1),
    ),
    "a refusal of the first save": (EARLIER, [refused("", 0, 1), save(1, 2, 3)], end(1)),
    "a refusal before the head moved": (
        EARLIER,
        [save(1, 0, 1), refused("1", 2, 3), load(1, 4, 5), save(2, 0, 9)],
        end(2),
    ),
    "a refusal of a head that another refusal needs to be gone": (
        EARLIER,
        [save(1, 0, 2), refused("", 0, 1), refused("1", 3, 4), save(2, 5, 6)],
        end(2),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_history_is_found_out(what: str) -> None:
    reason, history, stored = WRONG[what]
    assert reason in "\n".join(problems(history, stored))


# --- compared with a search of all orders --------------------------------------------------


def explained(history: History, stored: list[Stored]) -> bool:
    """Search for an order that explains a history in which every stored checkpoint was
    requested."""
    there = {checkpoint.token for checkpoint in stored}
    known = [
        operation for operation in history if operation.answered < NEVER or operation.token in there
    ]
    return any(
        in_time(order) and in_this_order(order) == (list(order), stored)
        for order in permutations(known)
    )


def in_time(order: Sequence[Operation]) -> bool:
    return not any(
        later.answered < operation.invoked for operation, later in combinations(order, 2)
    )


def in_this_order(order: Sequence[Operation]) -> tuple[History, list[Stored]]:
    """Return operations with their answers in this order, and the resulting checkpoints."""
    top: list[Stored] = []
    answered = []
    for operation in order:
        head = top[-1] if top else NOTHING
        if operation.kind == "load":
            got = replace(
                operation,
                token=head.token,
                seq=head.seq,
                checkpoint_id=head.checkpoint_id,
                refused=False,
            )
        elif operation.expected not in (None, head.checkpoint_id):
            got = replace(operation, refused=True, seq=0, checkpoint_id="")
        else:
            number = len(top) + 1
            top.append(Stored(number, f"{number}", operation.token))
            got = replace(operation, refused=False, seq=number, checkpoint_id=f"{number}")
        answered.append(got if operation.answered < NEVER else operation)
    return answered, top


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, list[Stored]]:
    """Draw a few operations with the answers of some order, which may contradict their times."""
    operations = []
    for number in range(draw(st.integers(1, 5))):
        invoked = draw(st.integers(0, 8))
        answered = draw(st.sampled_from((invoked + 1, invoked + 2, invoked + 5)))
        expected = draw(st.sampled_from((None, None, "", "1", "2")))
        kind = draw(st.sampled_from(("save", "save", "load")))
        if kind == "load":
            operations.append(Operation("t", "load", invoked, answered))
        else:
            lost = draw(st.sampled_from((False, False, True)))
            until = NEVER if lost and expected is None else answered
            operations.append(Operation("t", "save", invoked, until, f"token {number}", expected))
    return in_this_order(draw(st.permutations(operations)))


@settings(max_examples=300)
@given(histories())
def test_it_finds_what_a_search_of_all_orders_finds(made: tuple[History, list[Stored]]) -> None:
    history, stored = made
    assert (problems(history, stored) == []) == explained(history, stored)
