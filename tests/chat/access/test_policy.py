"""What roles come to: the permissions of Django, and the rows that each role's acts reach."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils import timezone

from chat.access.accounts import playground_caller
from chat.access.backend import PERMISSIONS
from chat.access.chat_projects import chat_project, chat_project_choose, chat_projects
from chat.access.keys import key_create
from chat.access.memberships import membership_create
from chat.access.policy import may, orgs_reached, standing_of, visible
from chat.access.roles import Act, Reach, Role, role_reach
from chat.models import ApiKey, Org, Project
from tests.people import member


@pytest.fixture
def other(db: None) -> Project:
    return Project.objects.create(org=Org.objects.create(name="Other"), name="Theirs")


@pytest.mark.parametrize("role", Role.values)
def test_permissions_are_those_of_the_role(project: Project, role: str) -> None:
    user = member("ann", role)
    for permission, act in PERMISSIONS.items():
        assert user.has_perm(permission) == (role_reach(Role(role), act) > Reach.NONE), permission
    assert not user.has_perm("chat.add_org")
    assert not user.has_perm("auth.view_permission")


@pytest.mark.parametrize("role", Role.values)
def test_acts_on_the_installation_are_for_its_operator(project: Project, other: Project, role: str) -> None:
    here, there = member("here", role), member("there", role, org=other.org)
    for act in (act for act in Act if act.is_of_installation):
        assert may(here, act) == (role_reach(Role(role), act) > Reach.NONE)
        assert not may(there, act)


def test_rows_of_permissions_and_groups_give_nothing(project: Project) -> None:
    user = member("ann")
    everything = Permission.objects.all()
    user.user_permissions.set(everything)
    group = Group.objects.create(name="all")
    group.permissions.set(everything)
    user.groups.add(group)
    user.is_staff = True
    user.save()
    assert not User.objects.get(pk=user.pk).has_perm("auth.change_user")
    assert not async_to_sync(User.objects.get(pk=user.pk).ahas_perm)("auth.change_user")
    assert async_to_sync(member("boss", "admin").ahas_perm)("auth.change_user")


@pytest.mark.parametrize("role", ["owner", "viewer"])
def test_inactive_people_and_strangers_may_nothing(project: Project, role: str) -> None:
    for user in (AnonymousUser(), member("ann", role, is_active=False), User.objects.create_user("bob")):
        assert not any(may(user, act) for act in Act)
        assert not visible(Project.objects.all(), user, Act.PROJECTS_SEE, project="pk").exists()


def test_each_reach_shows_its_rows(project: Project, other: Project) -> None:
    second = Project.objects.create(org=project.org, name="Second")
    ann = member("ann")
    project.members.add(ann)
    keys = [
        key_create(project=place, name=str(place), owner=who)[0]
        for place in (project, second, other)
        for who in (None, ann)
    ]
    names = {key.pk: (key.project.name, key.owner_id is not None) for key in keys}

    def seen(user: User) -> set[tuple[str, bool]]:
        own = Q(owner=user)
        found = visible(ApiKey.objects.all(), user, Act.KEYS_SEE, org="project__org_id", own=own)
        return {names[pk] for pk in found.values_list("pk", flat=True)}

    everything_here = {("Search", False), ("Search", True), ("Second", False), ("Second", True)}
    assert seen(member("viewer", "viewer")) == everything_here
    assert seen(ann) == {("Search", True), ("Second", True)}, "not the one in an organisation that she is not in"
    assert seen(member("pays", "billing")) == set()
    assert seen(User.objects.create_superuser("root")) == set(names.values())
    projects = visible(Project.objects.all(), ann, Act.PROJECTS_SEE, project="pk")
    assert list(projects) == [project]


def test_roles_of_two_organisations_stay_apart(project: Project, other: Project) -> None:
    ann = member("ann", "viewer")
    membership_create(user=ann, org=other.org, role=Role("admin"))
    assert list(orgs_reached(ann, Act.PEOPLE_MANAGE)) == [other.org]
    assert may(ann, Act.KEYS_MANAGE)
    assert not may(ann, Act.KEYS_MANAGE, org_id=project.org_id)
    assert standing_of(ann).roles_given(org_id=project.org_id) == ()


def test_chats_count_to_a_project_of_the_person(project: Project, other: Project) -> None:
    ann = member("ann", org=other.org)
    assert chat_project(user=ann) == other
    second = Project.objects.create(org=other.org, name="Second")
    second.members.add(ann)
    assert chat_project(user=User.objects.get(pk=ann.pk)) == second
    assert chat_project(user=User.objects.create_superuser("root")) == project
    bare = Org.objects.create(name="Bare")
    made = chat_project(user=member("bob", org=bare))
    assert made.org == bare, "not that of another organisation, whose presets and log it would share"
    assert chat_project(user=member("cy", org=bare)) == made


def again(user: User) -> User:
    """Return the user as the next request reads it."""
    return User.objects.get(pk=user.pk)


def test_a_person_chooses_the_project_that_chats_count_to(project: Project, other: Project) -> None:
    ann = member("ann", org=other.org)
    second, third = (Project.objects.create(org=other.org, name=name) for name in ("Second", "Third"))
    for one in (other, second):
        one.members.add(ann)
    assert list(chat_projects(user=ann)) == [other, second]
    assert chat_project_choose(user=ann, project_id=second.pk) == second
    assert playground_caller(user=again(ann)).project_id == second.pk
    for refused in (third, project):
        with pytest.raises(ValidationError, match="choose one that the list has"):
            chat_project_choose(user=ann, project_id=refused.pk)
    second.members.remove(ann)
    assert chat_project(user=again(ann)) == other, "the choice holds as long as the person may use the project"
    second.members.add(ann)
    second.archived_at = timezone.now()
    second.save()
    assert chat_project(user=again(ann)) == other


def test_who_manages_projects_and_who_owns_the_installation_choose_any(project: Project, other: Project) -> None:
    assert list(chat_projects(user=member("eve", "admin", org=other.org))) == [other]
    root = User.objects.create_superuser("root")
    assert list(chat_projects(user=root)) == [project, other]
    chat_project_choose(user=root, project_id=other.pk)
    assert chat_project(user=again(root)) == other
