"""A Permit plugin that makes each pod wait for as long as its caller does."""

from typing import Final

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.points import PermitPlugin
from app.framework.spec import PluginSpec
from app.framework.status import Code, Status
from app.kube.core_v1 import Pod
from tests.fakes import NoArgs

_LONGEST_SECONDS: Final = 900.0


class Holds(PermitPlugin):
    """Never lets a pod go."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return Status(Code.WAIT), _LONGEST_SECONDS


HOLDS: Final = PluginSpec("Holds", NoArgs, Holds)
