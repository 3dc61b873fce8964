"""
Decides who pays for a request, by who or what ended it and by what was seen of its answer.

| it was ended by                    | nothing seen                                  | something seen     |
|------------------------------------|-----------------------------------------------|--------------------|
| the answer's own end               | usage: as reported, else as counted           | the same           |
| the client                         | stream: the prompt. JSON: awaited to its end  | what was seen      |
| the backend, or a deadline         | unknown: it may have generated, and may not   | what was seen      |
| a policy on the answer             | unknown                                       | what was seen      |
| a shutdown, or a failure of ours   | unknown                                       | what was seen      |

Above all of it: a request whose backend has certainly done nothing is free (it was not sent yet, the backend
refused it or could not be reached), and so is one that a request policy refused.
"""

from __future__ import annotations

from enum import Enum

from billing.models import EndedBy


class ChargeRule(Enum):
    """What the customer is charged for a request that has ended."""

    NOTHING = "the hold is released"
    # By the backend's report, completed by a count of what came after it.
    USAGE = "what was reported or counted"
    PROMPT = "the prompt, which the backend has read, and no output"
    # The ledger keeps a part of the hold for some minutes; in the end the customer pays nothing.
    UNKNOWN = "nobody knows yet"


def charge_rule(
    ended_by: EndedBy, *, is_complete: bool, is_waived: bool, is_provably_free: bool, has_output: bool
) -> ChargeRule:
    """
    The rule for one request, whose answer `is_complete` also where its client has left meanwhile.

    `has_output`: some of the answer was seen, or the backend has reported some.
    """
    if is_waived:
        return ChargeRule.NOTHING
    if is_complete or has_output:
        return ChargeRule.USAGE
    if is_provably_free:
        return ChargeRule.NOTHING
    # Whoever leaves before the first word has had the prompt read: it would be free to do that for ever.
    return ChargeRule.PROMPT if ended_by is EndedBy.CLIENT else ChargeRule.UNKNOWN
