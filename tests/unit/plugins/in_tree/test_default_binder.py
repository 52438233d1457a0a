"""Rules of DefaultBinder: it hands the binding, annotations and all, to the handle's binder."""

from app.framework.cycle_state import CycleState
from app.framework.status import error
from tests.builders import make_pod
from tests.harness import World, only


async def test_a_pod_is_bound_with_what_the_plugins_contributed() -> None:
    world = World(profile=only())
    world.binder.status = answer = error("conflict")
    state = CycleState()
    state.annotations["homeport.dev/home"] = "n1"

    status = await world.framework.binding.bind(state, make_pod("web-1"), "n1")

    assert answer.by("DefaultBinder") == status
    assert [("default/web-1", "n1", {"homeport.dev/home": "n1"})] == world.binder.bound
