"""The acts that are audited, and the kinds of objects that they are done to, with their labels.

An action reads `kind.verb`. Whoever builds an act that changes anything, shows what others wrote or hands data out adds
it here and calls `audit_record`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from django.utils.translation import gettext_lazy as _


class ActorKind(StrEnum):
    """Who acts: `NOBODY` is a client that is not signed in, `SYSTEM` the server by itself."""

    USER = "user"
    KEY = "key"
    ADMIN_KEY = "adminkey"
    COMMAND = "command"
    SYSTEM = "system"
    NOBODY = "nobody"


ACTORS: Mapping[str, Any] = {
    ActorKind.USER: _("User"),
    ActorKind.KEY: _("API key"),
    ActorKind.ADMIN_KEY: _("Admin key"),
    ActorKind.COMMAND: _("Command line"),
    ActorKind.SYSTEM: _("Server"),
    ActorKind.NOBODY: _("Nobody signed in"),
}

KINDS: Mapping[str, Any] = {
    "user": _("User"),
    "member": _("Member"),
    "invite": _("Invitation"),
    "mail": _("Mail"),
    "org": _("Organisation"),
    "project": _("Project"),
    "key": _("API key"),
    "admin_key": _("Admin key"),
    "service_account": _("Service account"),
    "budget": _("Budget"),
    "rule": _("Alert rule"),
    "channel": _("Alert channel"),
    "model": _("Model"),
    "price": _("Price"),
    "adapter": _("Adapter"),
    "alias": _("Weighted alias"),
    "job": _("Pull or import"),
    "batch": _("Batch"),
    "file": _("File"),
    "chats": _("Chats"),
    "link": _("Link to a chat"),
    "worker": _("Worker"),
    "request": _("Request"),
    "requests": _("Request log"),
    "usage": _("Usage"),
    "audit": _("Audit"),
}

ACTIONS: Mapping[str, Any] = {
    "user.sign_in": _("Signed in"),
    "user.sign_in_failed": _("Sign-in failed"),
    "user.sign_out": _("Signed out"),
    "user.create": _("Account made"),
    "user.change": _("Account changed"),
    "user.chat_project": _("Project of the chats chosen"),
    "user.password": _("Password set"),
    "user.delete": _("Account deleted"),
    "user.factor_add": _("Second factor added"),
    "user.factor_remove": _("Second factor removed"),
    "user.codes": _("Recovery codes made"),
    "user.provider_add": _("Account of the OpenID provider connected"),
    "user.provider_remove": _("Account of the OpenID provider disconnected"),
    "user.session_end": _("Browser signed out"),
    "user.reset_link": _("Link for a new password made"),
    "user.reset_used": _("Link for a new password used"),
    "budget.create": _("Budget made"),
    "budget.change": _("Budget changed"),
    "budget.delete": _("Budget deleted"),
    "rule.change": _("Alert rule changed"),
    "channel.create": _("Alert channel made"),
    "channel.change": _("Alert channel changed"),
    "channel.rotate": _("Secret of an alert channel rotated"),
    "channel.test": _("Test notice sent"),
    "channel.delete": _("Alert channel deleted"),
    "org.create": _("Organisation made"),
    "org.change": _("Organisation changed"),
    "org.delete": _("Organisation deleted"),
    "member.create": _("Member added"),
    "member.change": _("Role of a member changed"),
    "member.delete": _("Member removed"),
    "invite.create": _("Invitation made"),
    "invite.revoke": _("Invitation revoked"),
    "invite.accept": _("Invitation accepted"),
    "mail.test": _("Test mail sent"),
    "project.create": _("Project made"),
    "project.change": _("Project changed"),
    "project.archive": _("Project archived"),
    "project.restore": _("Project restored"),
    "project.delete": _("Project deleted"),
    "key.create": _("Key made"),
    "key.change": _("Key changed"),
    "key.rotate": _("Key rotated"),
    "key.disable": _("Key disabled"),
    "key.enable": _("Key enabled"),
    "key.delete": _("Key deleted"),
    "service_account.create": _("Service account made"),
    "service_account.change": _("Service account changed"),
    "service_account.delete": _("Service account deleted"),
    "admin_key.create": _("Admin key made"),
    "admin_key.revoke": _("Admin key revoked"),
    "model.create": _("Model added"),
    "model.change": _("Model changed"),
    "model.delete": _("Model deleted"),
    "model.load": _("Model loaded"),
    "model.unload": _("Model unloaded"),
    "model.restart": _("Model restarted"),
    "model.warm": _("Model warmed up"),
    "worker.drain": _("Worker drained"),
    "worker.resume": _("Worker resumed"),
    "request.cancel": _("Request cancelled"),
    "request.read": _("Text of a request read"),
    "price.create": _("Price added"),
    "price.delete": _("Price deleted"),
    "adapter.create": _("Adapter added"),
    "adapter.change": _("Adapter changed"),
    "adapter.delete": _("Adapter deleted"),
    "alias.create": _("Weighted alias made"),
    "alias.change": _("Weighted alias changed"),
    "alias.delete": _("Weighted alias deleted"),
    "job.create": _("Pull or import begun"),
    "job.cancel": _("Pull or import cancelled"),
    "batch.cancel": _("Batch cancelled"),
    "file.delete": _("File deleted"),
    "chats.read": _("Chats of somebody else read"),
    "chats.export": _("Chats exported"),
    "link.create": _("Link to a chat made"),
    "link.revoke": _("Link to a chat revoked"),
    "requests.export": _("Request log exported"),
    "requests.prune": _("Old requests deleted"),
    "usage.export": _("Usage exported"),
    "usage.rebuild": _("Usage summed anew"),
    "audit.export": _("Audit exported"),
    "audit.prune": _("Old audit entries deleted"),
}
"""Labels by action. The kind before the dot is that of the object."""
