"""Compares an answer of a running Homeport with this version's models, after a command failed to read the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from app.commands.service import Pages
from app.homes.homes_page import HomesPage
from app.whatif.drain_models import DrainPlan
from app.whatif.models import LossPlan, Simulation
from app.whatif.rebalance_models import RebalancePlan
from app.wire.explain_v1 import ExplainResponse, ExplanationList
from app.wire.overview_v1 import NodeMap, Overview
from app.wire.pending_v1 import PendingPodList
from app.wire.skew_v1 import WorkloadSkewList

_MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "/api/v1/pending": PendingPodList,
    "/api/v1/skew": WorkloadSkewList,
    "/api/v1/homes": HomesPage,
    "/api/v1/drain": DrainPlan,
    "/api/v1/simulate": Simulation,
    "/api/v1/lose": LossPlan,
    "/api/v1/rebalance": RebalancePlan,
    "/api/v1/overview": Overview,
    "/api/v1/nodes": NodeMap,
}
_EXPLAIN: Final = "/api/v1/explain"
_PARTS_OF_A_POD: Final = 2


class LastAnswer:
    """Implementation of ``Pages`` that passes requests to other ``pages``, and stores the last answer."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._path = ""
        self._answer: dict[str, Any] = {}

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        self._path, self._answer = path, {}
        self._answer = self._pages.get(path, query)
        return self._answer

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        self._path, self._answer = path, {}
        self._answer = self._pages.post(path, body)
        return self._answer

    def is_of_this_version(self) -> bool:
        """Return True if the last answer has all fields of this version, with the right types.

        Additional fields are allowed. For a path without a model, return False.
        """
        model = _model_at(self._path)
        if model is None:
            return False
        try:
            model.model_validate(self._answer)
        except ValidationError as error:
            return all(it["type"] == "extra_forbidden" for it in error.errors(include_url=False, include_input=False))
        return True


def _model_at(path: str) -> type[BaseModel] | None:
    parts = path.removeprefix(_EXPLAIN).split("/")[1:] if path.startswith(_EXPLAIN) else None
    if parts is None:
        return _MODELS.get(path)
    return ExplainResponse if len(parts) == _PARTS_OF_A_POD else ExplanationList
