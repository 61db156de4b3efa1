"""Groups that never share a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.policy import POLICIES, Apart, choose, keep_apart
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest

MakeState = Callable[..., GPUState]

RULE = Apart(frozenset({"physics", "medicine"}))


@pytest.mark.parametrize(
    ("mine", "theirs", "because"),
    [
        pytest.param({"physics"}, {"medicine"}, "medicine", id="one of each"),
        pytest.param({"physics"}, {"physics", "staff"}, None, id="the same group"),
        pytest.param({"physics"}, {"staff"}, None, id="somebody of no such group"),
        pytest.param({"staff"}, {"medicine"}, None, id="I am of no such group"),
        pytest.param({"physics", "medicine"}, {"physics"}, "medicine", id="I am in both"),
        pytest.param({"physics", "medicine"}, {"physics", "medicine"}, None, id="both in both"),
        pytest.param(set(), {"physics"}, None, id="no groups at all"),
    ],
)
def test_who_may_share(mine: set[str], theirs: set[str], because: str | None) -> None:
    assert RULE.forbids(mine, theirs) == because
    assert (RULE.forbids(theirs, mine) is None) == (because is None)


def test_a_rule_of_one_group_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least two"):
        Apart(frozenset({"physics"}))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("request_", [SliceRequest(ProfileName(1, 10)), WholeRequest()], ids=str)
def test_no_policy_places_somebody_beside_whom_he_must_not_meet(
    make_state: MakeState, policy: str, request_: Request
) -> None:
    fleet = [make_state(taken=[("2g.20gb", 4)]), make_state(number=1), make_state(number=2, unavailable="cordoned")]
    occupants = {fleet[0].gpu.gpu_uuid: [frozenset({"medicine"})]}
    seen = keep_apart(fleet, [RULE], {"physics"}, occupants)
    decision = choose(request_, seen, POLICIES[policy])
    assert decision is not None
    assert decision.node == "node-1"
    assert "group medicine is kept apart" in str(seen[0].unavailable)
    assert seen[2].unavailable == "cordoned"
    assert keep_apart(fleet, [RULE], {"staff"}, occupants) == fleet
    assert keep_apart(fleet, [], {"physics"}, occupants) == fleet
