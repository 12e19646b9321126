"""The tables of access: organisation > project > key. A key is an identity; rotation replaces its secrets."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chat.access.checks import Right, check_networks, check_origins, check_rights, check_texts
from chat.access.limit_columns import LimitColumns
from chat.access.roles import Role

MAX_DAYS = 3650


def default_rights() -> list[str]:
    return [str(Right.INFERENCE)]


class Org(LimitColumns):
    name = models.CharField(max_length=120, unique=True)
    is_operator = models.BooleanField("operates the installation", default=False, editable=False)
    """Whether roles here hold for the installation too: models, workers, alerts, the system. True of one at most."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name",)
        verbose_name = "organisation"
        constraints = (
            models.UniqueConstraint(fields=("is_operator",), condition=models.Q(is_operator=True), name="one_operator"),
        )

    def __str__(self) -> str:
        return self.name


class Membership(LimitColumns):
    """What a person is in an organisation. `chat.access.policy` says what follows from it."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships", verbose_name="person"
    )
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="memberships", verbose_name="organisation")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)
    may_chat = models.BooleanField("may use the playground", default=True)
    created_at = models.DateTimeField("member since", default=timezone.now, editable=False)

    class Meta:
        ordering = ("org__name", "user__username")
        verbose_name = "member"
        constraints = (models.UniqueConstraint(fields=("user", "org"), name="one_role_in_org"),)

    def __str__(self) -> str:
        return f"{self.user} in {self.org}"


class Project(LimitColumns):
    """The owner of keys and their usage, and the tenant that prefix caches are separated by."""

    org = models.ForeignKey(Org, on_delete=models.PROTECT, related_name="projects", verbose_name="organisation")
    name = models.CharField(max_length=120)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="projects", blank=True)
    """People of the organisation who make keys of their own here. Admins and owners reach every project anyway."""
    may_share = models.BooleanField("links to chats", default=True, db_default=True)
    """Whether people whose chats count to this project make links to them, and the links that they have made work."""
    model_names = models.JSONField("allowed models", default=list, blank=True, validators=[check_texts])
    """Empty: every model. Keys and chats that count to it use no others."""
    keeps_api_texts = models.BooleanField("keep texts of API requests", default=False, db_default=False)
    """Whether the request log keeps prompts and answers, redacted, of requests with keys of this project."""
    keeps_chat_texts = models.BooleanField("keep texts of chats", default=False, db_default=False)
    stores_nothing = models.BooleanField("store nothing of callers", default=False, db_default=False)
    """The request log keeps no texts, addresses, programs, labels, metadata and error messages."""
    redaction_patterns = models.JSONField("own redaction patterns", default=list, db_default=[], blank=True)
    """Regular expressions; what they match is replaced before texts are stored."""
    log_days = models.PositiveSmallIntegerField(
        "days of requests", null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(MAX_DAYS)]
    )
    """How long the request log keeps requests. None: LIGHTCONE_LOG_DAYS."""
    text_days = models.PositiveSmallIntegerField(
        "days of texts", default=7, db_default=7, validators=[MinValueValidator(1), MaxValueValidator(MAX_DAYS)]
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)
    """Since when its keys are refused and nothing is made in it. Its history stays."""

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("org", "name"), name="project_name_in_org"),)

    def __str__(self) -> str:
        return self.name


class ChatProject(models.Model):
    """The project that a person chose for their chats."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="chosen_by")

    def __str__(self) -> str:
        return f"{self.project} for the chats of {self.user}"


class Invitation(models.Model):
    """A link that makes somebody a member once. Its secret is not stored."""

    digest = models.CharField(max_length=64, unique=True, editable=False)
    email = models.EmailField("e-mail address", blank=True)
    """Whom it was sent to. Empty: the link is copied."""
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="invitations", verbose_name="organisation")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)
    may_chat = models.BooleanField("may use the playground", default=True)
    projects = models.ManyToManyField(Project, related_name="invitations", blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="invitations", verbose_name="invited by"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField("expires")
    revoked_at = models.DateTimeField(null=True, editable=False)
    accepted_at = models.DateTimeField(null=True, editable=False)
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, editable=False, related_name="+"
    )

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.email or f"Link {self.pk}"

    @property
    def is_open(self) -> bool:
        return not (self.revoked_at or self.accepted_at) and self.expires_at > timezone.now()


class ServiceAccount(models.Model):
    """An account of a project for programs: a name and keys, no sign-in and no role. It outlives who made it."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="service_accounts")
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    deleted_at = models.DateTimeField(null=True, editable=False)
    """Since when it is gone. The row stays, as usage is counted under its name."""

    class Meta:
        ordering = ("project__name", "name")
        constraints = (
            models.UniqueConstraint(
                fields=("project", "name"),
                condition=models.Q(deleted_at=None),
                name="service_account_name",
                violation_error_message=_("The project has a service account of this name: choose another."),
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def usage_id(self) -> int:
        """Return the number that stands for it where usage names people: below zero, so that it is nobody's."""
        return -int(self.pk)


class ApiKey(LimitColumns):
    """The identity of a key: scopes, limits and history belong to it, not to one of its secrets."""

    public_id = models.CharField("key id", max_length=16, unique=True, editable=False)
    name = models.CharField(max_length=120)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="keys")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="keys"
    )
    """The person whose key it is. None: it belongs to the project and outlives everybody's membership."""
    service_account = models.ForeignKey(
        ServiceAccount, on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="keys"
    )
    """The service account whose key it is, instead of a person."""
    rights = models.JSONField(default=default_rights, blank=True, validators=[check_rights])
    model_names = models.JSONField("allowed models", null=True, blank=True, default=None, validators=[check_texts])
    """None allows every model, an empty list none. Names are text, so that deleting a model never widens a key."""
    networks = models.JSONField("allowed networks", default=list, blank=True, validators=[check_networks])
    """Empty: every network."""
    origins = models.JSONField("allowed browser origins", default=list, blank=True, validators=[check_origins])
    """Empty: every origin."""
    min_priority = models.SmallIntegerField("priority", default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    disabled_at = models.DateTimeField(null=True, blank=True, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-id",)
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} (lc_{self.public_id}_…)"


class ApiKeySecret(models.Model):
    """One secret of a key: a keyed digest of the key text, and its last four characters. The text is not stored."""

    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="secrets")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    pepper_version = models.CharField(max_length=8, editable=False)
    last4 = models.CharField(max_length=4, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    valid_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"…{self.last4}"


class AdminKey(models.Model):
    """A key of /v1/organization. It acts as the person who made it, in one organisation. The text is not stored."""

    public_id = models.CharField("key id", max_length=16, unique=True, editable=False)
    name = models.CharField(max_length=120)
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="admin_keys", verbose_name="organisation")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, editable=False, related_name="admin_keys"
    )
    """Who made it. Without that account it is refused."""
    networks = models.JSONField("allowed networks", default=list, blank=True, validators=[check_networks])
    """Empty: every network."""
    digest = models.CharField(max_length=64, unique=True, editable=False)
    pepper_version = models.CharField(max_length=8, editable=False)
    last4 = models.CharField(max_length=4, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("-id",)
        verbose_name = "admin key"

    def __str__(self) -> str:
        return f"{self.name} (lca_{self.public_id}_…)"

    @property
    def shown(self) -> str:
        """Return what is shown of its text."""
        return f"lca_{self.public_id}_…{self.last4}"
