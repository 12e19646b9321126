"""The tables of the page: its state and the presets of each user. Texts are JSON, in which a NUL is an escape."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

MAX_PRESET_CHARS = 100


class PageState(models.Model):
    """What a page keeps between visits: chosen model, parameters, keys, panels."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="+")
    text = models.TextField()
    saved_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return str(self.user_id)


class Preset(models.Model):
    """Parameters under a name. A shared one is also offered to the other users of its project."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey("chat.Project", on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=MAX_PRESET_CHARS)
    parameters = models.TextField()
    is_shared = models.BooleanField(default=False)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("owner", "name"), name="preset_of_owner"),)

    def __str__(self) -> str:
        return str(self.name)
