"""Which launches of two profiles are the same kernel: by name and size, then by less where only one pair is left."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

import msgspec

from profkit.model.documents.kernel_comparison import MatchedBy
from profkit.model.kernel import KernelProfile

_DROPPED: Final = re.compile(r"\bat::native::|\bvoid |\(anonymous namespace\)::|<unnamed>::|\((?:int|bool|long)\)|\s+")
"""What newer versions of ncu leave out of a name that older ones print."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of one kernel in one size, in their order."""

    launches: tuple[KernelProfile, ...]

    @property
    def first(self) -> KernelProfile:
        """The launch that stands for what all have in common."""
        return self.launches[0]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel on both sides, and by what it is the same."""

    by: MatchedBy
    before: Group
    after: Group


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """What has a partner, and what has none."""

    matches: tuple[Match, ...]
    only_before: tuple[Group, ...]
    only_after: tuple[Group, ...]


def matched(before: Iterable[KernelProfile], after: Iterable[KernelProfile]) -> Matching:
    """The same kernels of two sides.

    Each rule takes what the ones before it left. Beyond name and size, a pair needs to be the only candidate on both
    sides: two kernels of one function are told apart by nothing else.
    """
    left, right = _groups(before), _groups(after)
    is_single = len(left) == len(right) == 1
    found: list[Match] = []
    for by, key in _RULES:
        pairs = _pairs(left, right, key)
        found += [Match(by=by, before=one, after=other) for one, other in pairs]
        left = [group for group in left if all(group is not one for one, _ in pairs)]
        right = [group for group in right if all(group is not other for _, other in pairs)]
    if is_single and left:
        found, left, right = [Match(by=MatchedBy.ALONE, before=left[0], after=right[0])], [], []
    return Matching(matches=tuple(found), only_before=tuple(left), only_after=tuple(right))


def _groups(profiles: Iterable[KernelProfile]) -> list[Group]:
    found: dict[Hashable, list[KernelProfile]] = {}
    for profile in profiles:
        found.setdefault(_name_and_size(profile), []).append(profile)
    return [Group(launches=tuple(launches)) for launches in found.values()]


def _pairs(
    left: Sequence[Group], right: Sequence[Group], key: Callable[[KernelProfile], Hashable]
) -> list[tuple[Group, Group]]:
    sides: list[dict[Hashable, list[Group]]] = [{}, {}]
    for side, groups in zip(sides, (left, right), strict=True):
        for group in groups:
            side.setdefault(key(group.first), []).append(group)
    both = [(sides[0][name], sides[1][name]) for name in sides[0] if name in sides[1]]
    return [(ones[0], others[0]) for ones, others in both if len(ones) == len(others) == 1]


def _name_and_size(profile: KernelProfile) -> Hashable:
    return _DROPPED.sub("", profile.name), profile.grid, profile.block


def _function_and_size(profile: KernelProfile) -> Hashable:
    return profile.function, profile.grid, profile.block


def _name_alone(profile: KernelProfile) -> Hashable:
    return _DROPPED.sub("", profile.name)


def _function_alone(profile: KernelProfile) -> Hashable:
    return profile.function


_RULES: Final[tuple[tuple[MatchedBy, Callable[[KernelProfile], Hashable]], ...]] = (
    (MatchedBy.NAME, _name_and_size),
    (MatchedBy.FUNCTION, _function_and_size),
    (MatchedBy.FUNCTION_ALONE, _name_alone),
    (MatchedBy.FUNCTION_ALONE, _function_alone),
)
