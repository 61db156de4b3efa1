"""Names of profiles: every form that is written somewhere, and a reason for every one that is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mig_spawner.domain.profile import MEDIA_EXTENSIONS, ProfileName
from mig_spawner.errors import InvalidProfile

NAMES = st.builds(
    ProfileName,
    compute_slices=st.integers(1, 99),
    memory_gb=st.integers(0, 9999),
    suffix=st.one_of(
        st.sampled_from(MEDIA_EXTENSIONS),
        st.from_regex(r"[+-][a-z][a-z0-9]{0,11}(\.[a-z0-9]{1,12}){0,2}", fullmatch=True),
    ),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1g.10gb", ProfileName(1, 10), id="plain"),
        pytest.param("mig-1g.10gb", ProfileName(1, 10), id="resource name"),
        pytest.param("MIG-3G.40GB", ProfileName(3, 40), id="capitals"),
        pytest.param("  7g.141gb\n", ProfileName(7, 141), id="spaces around"),
        pytest.param("1g.5gb+me", ProfileName(1, 5, "+me"), id="media"),
        pytest.param("1g.5gb.me", ProfileName(1, 5, "+me"), id="media, label form"),
        pytest.param("mig-1g.5gb.me", ProfileName(1, 5, "+me"), id="media, resource name"),
        pytest.param("2g.48gb+me.all", ProfileName(2, 48, "+me.all"), id="all media"),
        pytest.param("2g.48gb.me.all", ProfileName(2, 48, "+me.all"), id="all media, label form"),
        pytest.param("1g.24gb-me", ProfileName(1, 24, "-me"), id="no media"),
        pytest.param("4g.96gb+gfx", ProfileName(4, 96, "+gfx"), id="graphics"),
        pytest.param("4g.96gb.gfx", ProfileName(4, 96, "+gfx"), id="graphics, label form"),
        pytest.param("5g.77gb+zz", ProfileName(5, 77, "+zz"), id="a word of a card to come"),
        pytest.param("mig-5g.77gb.zz.v2", ProfileName(5, 77, "+zz.v2"), id="such words, resource name"),
        pytest.param("1g.10gb-me.all", ProfileName(1, 10, "-me.all"), id="known words anew"),
        pytest.param("1g.0gb", ProfileName(1, 0), id="unified memory"),
    ],
)
def test_every_written_form_is_read(text: str, expected: ProfileName) -> None:
    assert ProfileName.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("big", id="a word"),
        pytest.param("10gb", id="memory alone"),
        pytest.param("1g", id="compute alone"),
        pytest.param("0g.10gb", id="no compute slice"),
        pytest.param("01g.10gb", id="leading zero"),
        pytest.param("-1g.10gb", id="negative"),
        pytest.param("1g.10gb+", id="a sign alone"),
        pytest.param("1g.10gbme", id="a word without a sign"),
        pytest.param("1g.10gb+9", id="a number for a word"),
        pytest.param("1g.10gb+me..all", id="an empty word"),
        pytest.param("1g.10gb+" + "m" * 13, id="a very long word"),
        pytest.param("1g.10gb+me+me", id="suffix twice"),
        pytest.param("1g.10gb\n2g.20gb", id="two lines"),
        pytest.param("1g.10gb ; rm -rf /", id="shell"),
        pytest.param("<b>1g.10gb</b>", id="markup"),
        pytest.param("1g.1\u0660gb", id="digits of another script"),
        pytest.param("1g.99999gb", id="too much memory"),
        pytest.param("all", id="all"),
        pytest.param("mig-mig-1g.10gb", id="prefix twice"),
        pytest.param("1" * 10_000, id="very long"),
    ],
)
def test_what_is_no_profile_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidProfile, match=r"no MIG profile.*1g\.10gb") as caught:
        ProfileName.parse(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "value", [None, 1, ["1g.10gb"], {"a": 1}, b"1g.10gb"], ids=["none", "number", "list", "dict", "bytes"]
)
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidProfile, match=type(value).__name__):
        ProfileName.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["1c.3g.20gb", "mig-1c.3g.20gb", "2C.3G.20GB"])
def test_a_part_of_an_instance_is_refused_and_the_whole_one_named(text: str) -> None:
    with pytest.raises(InvalidProfile, match=r"compute instance.*instead: 3g\.20gb"):
        ProfileName.parse(text)


@pytest.mark.parametrize("suffix", ["me", "+", "+Me", "+me+gfx", "+me all", "+me\n", ".me"], ids=repr)
def test_a_suffix_that_is_no_sign_and_words_does_not_construct(suffix: str) -> None:
    with pytest.raises(InvalidProfile, match=r"\+me"):
        ProfileName(1, 10, suffix)


def test_two_profiles_with_equal_memory_are_two() -> None:
    one, two = ProfileName.parse("1g.20gb"), ProfileName.parse("2g.20gb")
    assert one.memory_gb == two.memory_gb
    assert one != two
    assert len({one, two, ProfileName.parse("mig-1g.20gb")}) == 2


@given(NAMES)
def test_what_is_printed_is_read_again(name: ProfileName) -> None:
    assert ProfileName.parse(str(name)) == name
    assert ProfileName.parse(f"mig-{name}") == name
    assert ProfileName.parse(name.label) == name


@given(NAMES)
def test_a_label_is_one_that_kubernetes_takes(name: ProfileName) -> None:
    assert all(c.isalnum() or c in "-_." for c in name.label)
    assert len(name.label) <= 63


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        name = ProfileName.parse(text)
    except InvalidProfile:
        return
    assert ProfileName.parse(str(name)) == name
