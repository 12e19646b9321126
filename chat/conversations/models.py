"""The tables of conversations. Texts that clients send are stored as JSON, in which a NUL character is an escape."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

MAX_ID_CHARS = 64
MAX_TITLE_CHARS = 200
MAX_FOLDER_CHARS = 100
MAX_FACET_CHARS = 200


class ChatSpace(models.Model):
    """The bytes that the conversations of an account take, without deleted ones. Its row is the lock of writers."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="chat_space"
    )
    num_bytes = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.user_id}: {self.num_bytes}"


class Conversation(models.Model):
    """A conversation without its turns. `public_id` is given by the page, so that saving twice makes one.

    `head`: the last turn that is shown. `settings`: model, parameters and system prompt, as JSON. `tags`: a JSON array
    of texts. `version` counts the changes of title, folder, tags, pin, archive and settings. `deleted_at`: it can be
    restored until it is removed.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    public_id = models.CharField("conversation id", max_length=MAX_ID_CHARS)
    title = models.CharField(max_length=MAX_TITLE_CHARS, default="")
    folder = models.CharField(max_length=MAX_FOLDER_CHARS, default="")
    settings = models.TextField(default="{}")
    tags = models.TextField(default="[]", db_default="[]")
    head = models.CharField(max_length=MAX_ID_CHARS, default="")
    version = models.PositiveIntegerField(default=1)
    num_turns = models.PositiveIntegerField("turns", default=0)
    num_bytes = models.BigIntegerField("size", default=0)
    pinned_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-updated_at", "-id")
        constraints = (models.UniqueConstraint(fields=("user", "public_id"), name="conversation_of_user"),)
        indexes = (
            models.Index(fields=("user", "-updated_at", "-id"), name="conversation_history"),
            models.Index(fields=("updated_at",), name="conversation_age"),
        )

    def __str__(self) -> str:
        return str(self.public_id)


class Draft(models.Model):
    """What was typed and not sent, as JSON: in a conversation, or without one in the new chat of a user."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    conversation = models.OneToOneField(Conversation, on_delete=models.CASCADE, null=True, related_name="draft")
    text = models.TextField()
    saved_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("user",), condition=models.Q(conversation=None), name="draft_of_the_new_chat"
            ),
        )

    def __str__(self) -> str:
        return f"{self.user_id}/{self.conversation_id}"


class TurnState(models.TextChoices):
    BEGUN = "begun", "Begun"
    ENDED = "ended", "Ended"
    FAILED = "failed", "Failed"


class Turn(models.Model):
    """One message of a conversation. An edited or repeated one is another turn with the same parent.

    `parent`: the `public_id` of the turn before it, empty for a first one; it never changes, so there are no cycles.
    `body`: content, model, parameters, usage, timings and error, as JSON. `run_public_id`, `project_id`: the run whose
    answer it is.
    """

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    public_id = models.CharField("turn id", max_length=MAX_ID_CHARS)
    parent = models.CharField(max_length=MAX_ID_CHARS, default="")
    role = models.CharField(max_length=16)
    state = models.CharField(max_length=8, choices=TurnState.choices)
    body = models.TextField()
    run_public_id = models.CharField(max_length=160, default="")
    project_id = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("conversation", "public_id"), name="turn_of_conversation"),)
        indexes = (models.Index(fields=("id",), name="turn_begun", condition=models.Q(state="begun")),)

    def __str__(self) -> str:
        return str(self.public_id)


class ChatFile(models.Model):
    """An image, a sound or a document that messages of an account name by `public_id` (files.py).

    `digest`: SHA-256 of the content, so that the same file is kept once. `sent_at`: when the page sent it last.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    public_id = models.CharField("file id", max_length=32)
    digest = models.CharField(max_length=64)
    media_type = models.CharField(max_length=32)
    num_bytes = models.BigIntegerField("size")
    content = models.BinaryField()
    sent_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("user", "public_id"), name="chat_file_of_user"),
            models.UniqueConstraint(fields=("user", "digest"), name="chat_file_once"),
        )
        indexes = (models.Index(fields=("sent_at",), name="chat_file_age"),)

    def __str__(self) -> str:
        return str(self.public_id)


class ChatFileUse(models.Model):
    """A file that a turn of a conversation names. It stays with the conversation."""

    file = models.ForeignKey(ChatFile, on_delete=models.CASCADE, related_name="uses")
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("file", "conversation"), name="chat_file_use_once"),)

    def __str__(self) -> str:
        return f"{self.conversation_id}/{self.file_id}"


class SearchText(models.Model):
    """The words of a turn or, without one, of a title (search.py). The database keeps their index itself."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="+")
    turn = models.OneToOneField(Turn, on_delete=models.CASCADE, null=True, related_name="+")
    words = models.TextField()

    def __str__(self) -> str:
        return f"{self.conversation_id}/{self.turn_id}"


class FacetKind(models.TextChoices):
    MODEL = "model", "Model"
    TAG = "tag", "Tag"
    TOOLS = "tools", "Tools"


class SearchFacet(models.Model):
    """What a search can filter conversations by (facets.py). `key`: the name without case."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="facets")
    kind = models.CharField(max_length=8, choices=FacetKind.choices)
    key = models.CharField(max_length=MAX_FACET_CHARS)
    name = models.CharField(max_length=MAX_FACET_CHARS)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("user", "kind", "key", "conversation"), name="facet_of_conversation"),
        )

    def __str__(self) -> str:
        return f"{self.conversation_id}/{self.kind}/{self.name}"


class ShareLink(models.Model):
    """A link to a frozen copy of what a conversation showed. `digest`: SHA-256 of its token, which is not stored.

    A revoked link is removed with its copy. `snapshot`: title and texts, as JSON; no parameters and no attachments.
    `password`: its hash, empty if none is asked for.
    """

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="links")
    digest = models.CharField(max_length=64, unique=True)
    snapshot = models.TextField()
    password = models.CharField(max_length=128, default="", db_default="")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return str(self.pk)
