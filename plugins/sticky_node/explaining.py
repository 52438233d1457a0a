"""What a person is told of a home: the same that filter goes by."""

from __future__ import annotations

from typing import Final

from app.framework.interface import Explanation, Table
from app.framework.node_info import Candidates
from plugins.sticky_node.home import Claim, home_key
from plugins.sticky_node.owners import Missing, Owner

_COLUMNS: Final = ("kept by", "node", "recorded", "made by")
_NONE: Final = "none yet: the first bind makes it"


def explain_missing(owner: Missing) -> Explanation:
    return Explanation(unblock=(f"the pod's owner {owner} is not in the picture: it must exist first",))


def explain_home(
    owner: Owner, home: str, nodes: Candidates, *, claim: Claim | None, made: bool, cause: str
) -> Explanation:
    """``home``: the node filter holds the pod to · ``claim``: what it goes by where no home is recorded.

    ``made``: the pod of the claim is there · ``cause``: why its home could not be written.
    """
    row = (str(owner), home or _NONE, claim is None and bool(home), _made_by(claim, made=made, cause=cause))
    return Explanation((Table("home", _COLUMNS, (row,)),), _unblock(owner, home, nodes))


def _made_by(claim: Claim | None, *, made: bool, cause: str) -> str:
    if claim is None:
        return ""
    if not made:
        return f"{claim.pod}, which is being bound to {claim.node}"
    return f"{claim.pod} on {claim.node}, not recorded{': ' if cause else ''}{cause}"


def _unblock(owner: Owner, home: str, nodes: Candidates) -> tuple[str, ...]:
    if not home or home in nodes.names:
        return ()
    return (f"node {home} is not there: bring it back, or set or remove {home_key(owner.slot)} on {owner}",)
